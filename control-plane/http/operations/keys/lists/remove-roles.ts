import { operation } from '../../operation.ts';
import { Fields, WaitMs } from '../../request-parts.ts';
import { PropagationResponse } from '../../response-parts.ts';
import { changeRoles, rolesExample, rolesOfKey } from './role-list.ts';

export const removeRoles = operation({
  name: 'keys.removeRoles',
  summary: 'Take roles from a key',
  description:
    'Answers when the change is complete: no verifier, anywhere, still accepts the key for what only they let it do. Roles that it lacks are passed over.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({ ...rolesOfKey('Roles that the key loses.'), waitMs: WaitMs }),
  response: PropagationResponse,
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
