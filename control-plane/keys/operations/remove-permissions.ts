import { operation } from '../../serve/operation.ts';
import { Fields, WaitMs } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';
import { slugsIn } from '../../serve/schemas/slug-schemas.ts';
import { changeList } from './list-change.ts';
import { permissionsExample, permissionsOfKey } from './permission-list.ts';

export const removePermissions = operation({
  name: 'keys.removePermissions',
  summary: 'Remove permissions from a key',
  description:
    'Returns when the change is complete: no verifier anywhere accepts the key for what was removed. Permissions that the key does not have are ignored.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({ ...permissionsOfKey('Permissions to remove.'), waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: permissionsExample,
  neverShed: true,
  async handle(call, services) {
    const removals = new Set(slugsIn(call.request.permissions));
    const change = (present: readonly string[]) => present.filter((slug) => !removals.has(slug));
    const { propagation } = await changeList(call, services, 'permissions', change);
    return { propagation };
  },
});
