import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { List } from '../../serve/schemas/field-schemas.ts';
import { RoleView } from './role.ts';

export const listRoles = operation({
  name: 'permissions.listRoles',
  summary: 'List all roles',
  description: 'Lists them in order of creation.',
  permissions: ['root.*.read_role'],
  request: Fields({}),
  response: List(RoleView),
  errors: [],
  example: { limit: '25' },
  handle: (_call, { roles }) => roles.list(),
});
