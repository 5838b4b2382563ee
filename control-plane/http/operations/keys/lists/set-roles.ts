import { operation } from '../../operation.ts';
import { Fields, KeyId } from '../../request-parts.ts';
import { GivenRoleNames } from '../../v2/key-data.ts';
import { RoleList, roleData } from '../../v2/lists-of-key.ts';
import { keyIdExample } from '../key.ts';
import { withDefaults } from './list-change.ts';
import { changeRoles, KeyRoles, listedRoles, rolesExample, rolesOfKey } from './role-list.ts';

export const setRoles = operation({
  name: 'keys.setRoles',
  summary: 'Set all roles of a key',
  description: 'Like addRoles, but removes all others.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields(rolesOfKey('All roles of the key after the change.')),
  response: KeyRoles,
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: rolesExample,
  neverShed: true,
  v2: {
    request: Fields({ keyId: KeyId, roles: GivenRoleNames }),
    data: RoleList,
    example: { keyId: keyIdExample, roles: ['editor'] },
    toRequest: (body) => body,
    toAnswer: async (roles, { services }) => ({
      data: await roleData(
        services,
        roles.map(({ id }) => id),
      ),
    }),
  },
  async handle(call, services) {
    const change = await changeRoles(call, services, (_present, ids) => ids);
    return listedRoles(services, withDefaults(change));
  },
});
