import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { withDefaults } from './list-change.ts';
import { changeRoles, KeyRoles, listedRoles, rolesExample, rolesOfKey } from './role-list.ts';

export const addRoles = operation({
  name: 'keys.addRoles',
  summary: 'Add roles to a key',
  description:
    'Returns when the change is complete, like updateKey. If that takes longer than FENCE_WAIT_MS, returns 503: the change is written, and the call can be repeated.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(rolesOfKey('Roles to add.')),
  response: KeyRoles,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: rolesExample,
  neverShed: true,
  async handle(call, services) {
    const change = await changeRoles(call, services, (present, additions) => [...present, ...additions]);
    return listedRoles(services, withDefaults(change));
  },
});
