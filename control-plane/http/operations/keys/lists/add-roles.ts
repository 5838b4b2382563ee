import { operation } from '../../operation.ts';
import { Fields, KeyId } from '../../request-parts.ts';
import { GivenRoleNames } from '../../v2/key-data.ts';
import { RoleList, roleData } from '../../v2/lists-of-key.ts';
import { keyIdExample } from '../key.ts';
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
    const change = await changeRoles(call, services, (present, additions) => [...present, ...additions]);
    return listedRoles(services, withDefaults(change));
  },
});
