import { operation } from '../../operation.ts';
import { Fields } from '../../request-parts.ts';
import { withDefaults } from './list-change.ts';
import { changeRoles, KeyRoles, listedRoles, rolesExample, rolesOfKey } from './role-list.ts';

export const addRoles = operation({
  name: 'keys.addRoles',
  summary: 'Give a key roles',
  description:
    'Answers when the change is complete, as updateKey does, and with 503 where that takes longer than FENCE_WAIT_MS: then it is written, and can be sent again.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(rolesOfKey('Roles that the key gets.')),
  response: KeyRoles,
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: rolesExample,
  neverShed: true,
  async handle(call, services) {
    const change = await changeRoles(call, services, (present, additions) => [...present, ...additions]);
    return listedRoles(services, withDefaults(change));
  },
});
