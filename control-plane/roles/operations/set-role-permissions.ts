import { storedFields } from '#shared/contract/key-record.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, WaitMs } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';
import { RoleId } from '../../serve/schemas/role-schemas.ts';
import { slugsIn } from '../../serve/schemas/slug-schemas.ts';
import { RolePermissions, roleIdExample, roleNotFound } from './role.ts';

export const setRolePermissions = operation({
  name: 'permissions.setRolePermissions',
  summary: 'Set all permissions of a role',
  description:
    'Makes one change, however many keys have the role. Returns when the change is complete, like updateKey: no verifier anywhere answers from the earlier state of the role.',
  permissions: ['root.*.update_role'],
  request: Fields({ roleId: RoleId, permissions: RolePermissions, waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'role.updated',
  errors: ['NOT_FOUND', 'VERIFIERS_TOO_OLD'],
  example: { roleId: roleIdExample, permissions: ['articles.read', 'articles.write'] },
  neverShed: true,
  async handle(call, { changeWriter }) {
    const { roleId, permissions, waitMs } = call.request;
    const fields = storedFields({ permissions: slugsIn(permissions) });
    const write = { apiId: SHARED_LOG, operation: 'update', keyId: roleId, fields } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange(fields));
    if (!propagation) throw roleNotFound(roleId);
    return { propagation };
  },
});
