import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { List } from '../../serve/schemas/field-schemas.ts';
import { PermissionView, permissionView } from './permission.ts';

export const listPermissions = operation({
  name: 'permissions.listPermissions',
  summary: 'List the catalogue of permissions',
  description: 'Lists them in order of creation.',
  permissions: ['root.*.read_permission'],
  request: Fields({}),
  response: List(PermissionView),
  errors: [],
  example: { limit: '25' },
  handle: async (_call, { catalogue }) => (await catalogue.list()).map(permissionView),
});
