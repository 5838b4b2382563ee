import { List } from '../../../core/schemas/field-schemas.ts';
import { PageCursor, PageLimit, pageOf, Search } from '../../../unkey-v2/envelope.ts';
import { matching } from '../../../unkey-v2/role-data.ts';
import { operation } from '../operation.ts';
import { Fields } from '../request-parts.ts';
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
  v2: {
    request: Fields({
      ...{ limit: PageLimit, cursor: PageCursor },
      search: Search('the slug, the name or the description'),
    }),
    data: List(PermissionView),
    paged: true,
    example: { limit: 100 },
    toRequest: () => ({}),
    toAnswer(permissions, { body }) {
      const matches = matching(permissions, ['slug', 'name', 'description'], body.search);
      const { items: data, pagination } = pageOf(matches, body, ['listPermissions', body.search]);
      return { data, pagination };
    },
  },
  handle: async (_call, { catalogue }) => (await catalogue.list()).map(permissionView),
});
