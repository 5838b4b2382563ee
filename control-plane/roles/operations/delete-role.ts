import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, WaitMs } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';
import { RoleId } from '../../serve/schemas/role-schemas.ts';
import { roleIdExample, roleNotFound } from './role.ts';

export const deleteRole = operation({
  name: 'permissions.deleteRole',
  summary: 'Delete a role',
  description:
    'Returns when the deletion is complete, like updateKey. Keys with the role keep its id, which grants nothing and is never used again.',
  permissions: ['root.*.delete_role'],
  request: Fields({ roleId: RoleId, waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'role.deleted',
  errors: ['NOT_FOUND'],
  example: { roleId: roleIdExample },
  neverShed: true,
  async handle(call, { changeWriter }) {
    const { roleId, waitMs } = call.request;
    const write = { apiId: SHARED_LOG, operation: 'delete', keyId: roleId, fields: {} } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange());
    if (!propagation) throw roleNotFound(roleId);
    return { propagation };
  },
});
