import { slugsIn } from '../../../../core/schemas/slug-schemas.ts';
import { operation } from '../../operation.ts';
import { Fields } from '../../request-parts.ts';
import { Permissions } from '../../response-parts.ts';
import { changeList, withDefaults } from './list-change.ts';
import { permissionsExample, permissionsOfKey, permissionViews } from './permission-list.ts';

export const addPermissions = operation({
  name: 'keys.addPermissions',
  summary: 'Let a key do more',
  description:
    'Answers when the change is complete, as updateKey does, and with 503 where that takes longer than FENCE_WAIT_MS: then it is written, and can be sent again. A permission is its own id, and needs not be created.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(permissionsOfKey('What the key may do besides what it may already.')),
  response: Permissions,
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: permissionsExample,
  neverShed: true,
  async handle(call, services) {
    const additions = slugsIn(call.request.permissions);
    const change = (present: readonly string[]) => [...present, ...additions];
    return permissionViews(withDefaults(await changeList(call, services, 'permissions', change)));
  },
});
