import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { withDefaults } from './list-change.ts';
import { changeRoles, KeyRoles, listedRoles, rolesExample, rolesOfKey } from './role-list.ts';

export const setRoles = operation({
  name: 'keys.setRoles',
  summary: 'Set all roles of a key',
  description: 'Like addRoles, but removes all others.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(rolesOfKey('All roles of the key after the change.')),
  response: KeyRoles,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: rolesExample,
  neverShed: true,
  async handle(call, services) {
    const change = await changeRoles(call, services, (_present, ids) => ids);
    return listedRoles(services, withDefaults(change));
  },
});
