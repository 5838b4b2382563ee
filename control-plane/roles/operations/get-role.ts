import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { RoleId } from '../../serve/schemas/role-schemas.ts';
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
