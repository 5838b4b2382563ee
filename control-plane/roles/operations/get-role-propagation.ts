import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, SequenceText } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';
import { RoleId } from '../../serve/schemas/role-schemas.ts';
import { roleIdExample, roleNotFound } from './role.ts';

export const getRolePropagation = operation({
  name: 'permissions.getRolePropagation',
  summary: "See how far a role's change has come",
  description: 'For changes that returned `pending`.',
  permissions: ['root.*.read_role'],
  request: Fields({ roleId: RoleId, sequence: SequenceText }),
  response: PropagationResponse,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { roleId: roleIdExample, sequence: '1' },
  async handle({ request: { roleId, sequence } }, { changeWriter }) {
    const propagation = await changeWriter.status(SHARED_LOG, roleId, Number(sequence));
    if (!propagation) throw roleNotFound(roleId);
    return { propagation };
  },
});
