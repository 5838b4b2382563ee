import { List } from '../../../core/schemas/field-schemas.ts';
import { PageCursor, PageLimit, pageOf, Search } from '../../../unkey-v2/envelope.ts';
import { matching, RoleData, rolesData } from '../../../unkey-v2/role-data.ts';
import { operation } from '../operation.ts';
import { Fields } from '../request-parts.ts';
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
  v2: {
    request: Fields({
      ...{ limit: PageLimit, cursor: PageCursor },
      search: Search('the id, the name or the description'),
    }),
    data: List(RoleData),
    paged: true,
    example: { limit: 100 },
    toRequest: () => ({}),
    async toAnswer(roles, { body, services: { catalogue } }) {
      const matches = matching(roles, ['id', 'name', 'description'], body.search);
      const { items, pagination } = pageOf(matches, body, ['listRoles', body.search]);
      return { data: await rolesData(items, catalogue), pagination };
    },
  },
  handle: (_call, { roles }) => roles.list(),
});
