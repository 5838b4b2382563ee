import type { FastifyRequest } from 'fastify';
import { ApiError, unavailable } from '#shared/errors.ts';
import { storedFields } from '#shared/key-record.ts';
import { SLUGS_MAX, slugsOf } from '#shared/slugs.ts';
import type { Propagation, Propagator } from '../../core/propagation.ts';
import { slugsIn } from '../../core/slug-schemas.ts';
import type { Keys } from '../../redis/keys.ts';
import { neverShed } from '../load-shedding.ts';
import { addPermissions, removePermissions, setPermissions } from '../operations/keys.ts';
import type { App } from '../server.ts';
import { recordChange } from './audit-hooks.ts';
import { recordNotFound, requireKey } from './authorization.ts';

/** Times that a change is made anew because another one of the same key came first, before the caller is told. */
const TRIES = 20;

/** Operations on the permissions of keys. */
export function keyPermissionRoutes(app: App, { keys, propagator }: { keys: Keys; propagator: Propagator }) {
  const config = neverShed;

  app.post('/v1/keys.addPermissions', { schema: addPermissions, config }, async (request) => {
    const { keyId, permissions } = request.body;
    const added = slugsIn(permissions);
    return listed(await change(request, keyId, (present) => [...present, ...added]));
  });

  app.post('/v1/keys.setPermissions', { schema: setPermissions, config }, async (request) => {
    const { keyId, permissions } = request.body;
    const slugs = slugsIn(permissions);
    return listed(await change(request, keyId, () => slugs));
  });

  app.post('/v1/keys.removePermissions', { schema: removePermissions, config }, async (request) => {
    const { keyId, permissions, waitMs } = request.body;
    const removed = new Set(slugsIn(permissions));
    const rest = (present: readonly string[]) => present.filter((slug) => !removed.has(slug));
    const { propagation } = await change(request, keyId, rest, waitMs);
    return { propagation };
  });

  /** Writes what becomes of a key's permissions, on the condition that they still are what they were. */
  async function change(
    request: FastifyRequest,
    keyId: string,
    become: (present: readonly string[]) => readonly string[],
    waitMs?: number,
  ): Promise<Changed> {
    const apiId = await requireKey(keys, request, keyId, 'update_key');
    for (let tries = 1; ; tries++) {
      const found = await keys.permissionsOf(apiId, keyId);
      if (!found) throw await recordNotFound(keys, apiId, keyId);
      const slugs = become(found.slugs);
      const fields = storedFields({ permissions: slugs });
      const text = fields.P ?? '';
      if (slugsOf(text).length > SLUGS_MAX)
        throw new ApiError('BAD_REQUEST', `permissions: a key has at most ${SLUGS_MAX}`);
      const write = { apiId, operation: 'update', keyId, fields, condition: found.version } as const;
      try {
        const propagation = await propagator.apply(write, waitMs, recordChange(request, fields));
        if (!propagation) throw await recordNotFound(keys, apiId, keyId);
        return { slugs: slugsOf(text), propagation };
      } catch (error) {
        const cameLate = error instanceof ApiError && error.code === 'CONFLICT';
        if (!cameLate || tries === TRIES) throw error;
      }
    }
  }
}

interface Changed {
  readonly slugs: readonly string[];
  readonly propagation: Propagation;
}

/** List of what the key may do now. It has room for nothing else, so the call is finished when it is answered. */
function listed({ slugs, propagation: { state, sequence } }: Changed) {
  if (state === 'complete') return slugs.map((slug) => ({ id: slug, name: slug }));
  throw unavailable(
    `the change is written as ${sequence} and not complete yet; send it again to wait for it`,
  );
}
