import { operation } from '../../serve/operation.ts';
import { Fields, WaitMs } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';
import { changeRoles, rolesExample, rolesOfKey } from './role-list.ts';

export const removeRoles = operation({
  name: 'keys.removeRoles',
  summary: 'Remove roles from a key',
  description:
    'Returns when the change is complete: no verifier anywhere accepts the key for what only these roles permitted. Roles that the key does not have are ignored.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({ ...rolesOfKey('Roles to remove.'), waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: rolesExample,
  neverShed: true,
  async handle(call, services) {
    const rest = (present: readonly string[], removals: readonly string[]) =>
      present.filter((id) => !removals.includes(id));
    const { propagation } = await changeRoles(call, services, rest);
    return { propagation };
  },
});
