import type { FastifyRequest } from 'fastify';
import { ApiError, unavailable } from '#shared/errors.ts';
import { storedFields } from '#shared/key-record.ts';
import { SLUGS_MAX, slugsOf } from '#shared/slugs.ts';
import type { Propagation, Propagator } from '../../core/propagation.ts';
import type { GivenRole } from '../../core/role-schemas.ts';
import type { Keys } from '../../redis/keys.ts';
import type { Roles } from '../../redis/workspace/roles.ts';
import { neverShed } from '../load-shedding.ts';
import { addRoles, removeRoles, setRoles } from '../operations/roles.ts';
import type { App } from '../server.ts';
import { recordChange } from './audit-hooks.ts';
import { recordNotFound, requireKey } from './authorization.ts';

/** Times that a change is made anew because another one of the same key came first, before the caller is told. */
const TRIES = 20;

/** Operations on the roles of keys. */
export function keyRoleRoutes(
  app: App,
  { keys, roles, propagator }: { keys: Keys; roles: Roles; propagator: Propagator },
) {
  const config = neverShed;

  app.post('/v1/keys.addRoles', { schema: addRoles, config }, async (request) =>
    listed(await change(request, request.body, (present, added) => [...present, ...added])),
  );

  app.post('/v1/keys.setRoles', { schema: setRoles, config }, async (request) =>
    listed(await change(request, request.body, (_present, ids) => ids)),
  );

  app.post('/v1/keys.removeRoles', { schema: removeRoles, config }, async (request) => {
    const rest = (present: readonly string[], removed: readonly string[]) =>
      present.filter((id) => !removed.includes(id));
    const { propagation } = await change(request, request.body, rest);
    return { propagation };
  });

  /** Writes what becomes of a key's roles, on the condition that they still are what they were. */
  async function change(
    request: FastifyRequest,
    { keyId, roles: given, waitMs }: { keyId: string; roles: readonly GivenRole[]; waitMs?: number },
    become: (present: readonly string[], given: readonly string[]) => readonly string[],
  ): Promise<Changed> {
    const apiId = await requireKey(keys, request, keyId, 'update_key');
    const named = await roles.idsOf(given);
    for (let tries = 1; ; tries++) {
      const found = await roles.ofKey(apiId, keyId);
      if (!found) throw await recordNotFound(keys, apiId, keyId);
      const wanted = [...new Set(become(found.ids, named))];
      // Those that were deleted take nobody's place.
      const ids = wanted.length > SLUGS_MAX ? await roles.existing(wanted) : wanted;
      const fields = storedFields({ roles: ids });
      if (ids.length > SLUGS_MAX) throw new ApiError('BAD_REQUEST', `roles: a key has at most ${SLUGS_MAX}`);
      const write = { apiId, operation: 'update', keyId, fields, condition: found.version } as const;
      try {
        const propagation = await propagator.apply(write, waitMs, recordChange(request, fields));
        if (!propagation) throw await recordNotFound(keys, apiId, keyId);
        return { ids: slugsOf(fields.R ?? ''), propagation };
      } catch (error) {
        const cameLate = error instanceof ApiError && error.code === 'CONFLICT';
        if (!cameLate || tries === TRIES) throw error;
      }
    }
  }

  /** List of the key's roles. It has room for nothing else, so the call is finished when it is answered. */
  async function listed({ ids, propagation: { state, sequence } }: Changed) {
    if (state !== 'complete')
      throw unavailable(
        `the change is written as ${sequence} and not complete yet; send it again to wait for it`,
      );
    const names = await roles.namesOf(ids);
    return ids.flatMap((id, i) => (names[i] === undefined ? [] : [{ id, name: names[i] }]));
  }
}

interface Changed {
  readonly ids: readonly string[];
  readonly propagation: Propagation;
}
