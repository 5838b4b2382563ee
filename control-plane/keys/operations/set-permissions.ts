import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { Permissions } from '../../serve/response-parts.ts';
import { slugsIn } from '../../serve/schemas/slug-schemas.ts';
import { changeList, withDefaults } from './list-change.ts';
import { permissionsExample, permissionsOfKey, permissionViews } from './permission-list.ts';

export const setPermissions = operation({
  name: 'keys.setPermissions',
  summary: 'Set all permissions of a key',
  description: 'Like addPermissions, but removes all others.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(permissionsOfKey('All permissions of the key after the change.')),
  response: Permissions,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: permissionsExample,
  neverShed: true,
  async handle(call, services) {
    const slugs = slugsIn(call.request.permissions);
    return permissionViews(withDefaults(await changeList(call, services, 'permissions', () => slugs)));
  },
});
