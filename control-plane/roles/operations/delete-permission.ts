import { unavailable } from '#shared/contract/errors.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, WaitMs } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';
import type { Services } from '../../services.ts';
import { PermissionId, permissionNotFound } from './permission.ts';

/** Maximum number of attempts to remove a permission from roles that change in between. */
const TRIES = 20;

export const deletePermission = operation({
  name: 'permissions.deletePermission',
  summary: 'Delete a permission from the catalogue, and from all roles',
  description:
    'Returns when the change is complete, like updateKey: no verifier anywhere lets a key use the permission because of a role. Keys that have the permission themselves keep it; keys.removePermissions removes it from them.',
  permissions: ['root.*.delete_permission'],
  request: Fields({ permissionId: PermissionId, waitMs: WaitMs }),
  response: PropagationResponse,
  errors: ['NOT_FOUND'],
  example: { permissionId: 'files.write' },
  neverShed: true,
  async handle(call, services) {
    const { catalogue, changeWriter } = services;
    const { permissionId: slug, waitMs } = call.request;
    const keyId = await catalogue.idOf(slug);
    if (!keyId) throw permissionNotFound(slug);
    call.note({ permissionId: slug });
    const leftMs = changeWriter.remainingTime(waitMs);
    const roleIds = await takeFromRoles(slug, leftMs, services);
    call.note({}, { after: { roles: roleIds } });
    const write = { apiId: SHARED_LOG, operation: 'delete', keyId, fields: {} } as const;
    const propagation = await changeWriter.apply(write, leftMs(), call.recordChange());
    if (!propagation) throw permissionNotFound(slug);
    return { propagation };
  },
});

/** Removes a permission from all roles. @returns the ids of the roles that had it */
async function takeFromRoles(
  slug: string,
  leftMs: () => number | undefined,
  { roles, changeWriter }: Pick<Services, 'roles' | 'changeWriter'>,
): Promise<string[]> {
  const roleIds = new Set<string>();
  for (let tries = 0; tries < TRIES; tries++) {
    const [first, ...others] = await roles.without(slug);
    if (!first) return [...roleIds];
    const { outcomes, propagation } = await changeWriter.applyAll([first, ...others], leftMs());
    if (propagation?.state === 'pending')
      throw unavailable(
        'some verifiers may not know yet that roles have lost the permission: send the call again',
      );
    for (const each of outcomes) if ('sequence' in each) roleIds.add(each.keyId);
  }
  throw unavailable('roles change faster than the permission can be removed from them: send the call again');
}
