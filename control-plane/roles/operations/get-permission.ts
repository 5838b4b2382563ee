import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { PermissionId, PermissionView, permissionNotFound, permissionView } from './permission.ts';

export const getPermission = operation({
  name: 'permissions.getPermission',
  summary: 'Show a permission',
  description: 'Shows its entry in the catalogue.',
  permissions: ['root.*.read_permission'],
  request: Fields({ permissionId: PermissionId }),
  response: PermissionView,
  errors: ['NOT_FOUND'],
  example: { permissionId: 'files.write' },
  async handle({ request: { permissionId: slug } }, { catalogue }) {
    const permission = await catalogue.get(slug);
    if (!permission) throw permissionNotFound(slug);
    return permissionView(permission);
  },
});
