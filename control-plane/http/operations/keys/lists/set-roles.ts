import { operation } from '../../operation.ts';
import { Fields } from '../../request-parts.ts';
import { withDefaults } from './list-change.ts';
import { changeRoles, KeyRoles, listedRoles, rolesExample, rolesOfKey } from './role-list.ts';

export const setRoles = operation({
  name: 'keys.setRoles',
  summary: 'Say all roles of a key',
  description: 'As addRoles, and takes away all others.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(rolesOfKey('All roles that the key is to have.')),
  response: KeyRoles,
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: rolesExample,
  neverShed: true,
  async handle(call, services) {
    const change = await changeRoles(call, services, (_present, ids) => ids);
    return listedRoles(services, withDefaults(change));
  },
});
