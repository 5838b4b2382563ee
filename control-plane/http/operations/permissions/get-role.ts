import { RoleId } from '../../../core/schemas/role-schemas.ts';
import { operation } from '../operation.ts';
import { Fields } from '../request-parts.ts';
import { RoleView, roleIdExample, roleNotFound } from './role.ts';

export const getRole = operation({
  name: 'permissions.getRole',
  summary: 'Show a role',
  description: 'Shows its permissions.',
  permissions: ['root.*.read_role'],
  request: Fields({ roleId: RoleId }),
  response: RoleView,
  errors: ['NOT_FOUND'],
  example: { roleId: roleIdExample },
  async handle({ request: { roleId } }, { roles }) {
    const role = await roles.get(roleId);
    if (!role) throw roleNotFound(roleId);
    return role;
  },
});
