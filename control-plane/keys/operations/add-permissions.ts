import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { Permissions } from '../../serve/response-parts.ts';
import { slugsIn } from '../../serve/schemas/slug-schemas.ts';
import { changeList, withDefaults } from './list-change.ts';
import { permissionsExample, permissionsOfKey, permissionViews } from './permission-list.ts';

export const addPermissions = operation({
  name: 'keys.addPermissions',
  summary: 'Add permissions to a key',
  description:
    'Returns when the change is complete, like updateKey. If that takes longer than FENCE_WAIT_MS, returns 503: the change is written, and the call can be repeated. A permission is its own id and need not exist before.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(permissionsOfKey('Permissions to add.')),
  response: Permissions,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: permissionsExample,
  neverShed: true,
  async handle(call, services) {
    const additions = slugsIn(call.request.permissions);
    const change = (present: readonly string[]) => [...present, ...additions];
    return permissionViews(withDefaults(await changeList(call, services, 'permissions', change)));
  },
});
