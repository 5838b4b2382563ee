import { ApiError } from '#shared/errors.ts';
import { identityIdOf } from '#shared/key-format.ts';
import { storedFields } from '#shared/key-record.ts';
import { WORKSPACE } from '#shared/redis/redis-keys.ts';
import { checkLimits } from '../../core/limit-schemas.ts';
import type { Propagator } from '../../core/propagation.ts';
import type { Identities } from '../../redis/workspace/identities.ts';
import { neverShed } from '../load-shedding.ts';
import {
  createIdentity,
  deleteIdentity,
  getIdentity,
  getIdentityPropagation,
  listIdentities,
  updateIdentity,
} from '../operations/identities.ts';
import type { App } from '../server.ts';
import { note, recordChange } from './audit-hooks.ts';
import { callerOf, requireRoot } from './authorization.ts';
import { makeCursor, openCursor } from './cursor.ts';
import { checkMeta } from './meta.ts';

const notFound = () => new ApiError('NOT_FOUND', 'there is no such identity');
/** The creation number to go on from. */
const PLACE = /^identity:(\d{1,15})$/;

/** Operations on identities. */
export function identityRoutes(
  app: App,
  { identities, propagator }: { identities: Identities; propagator: Propagator },
) {
  app.post('/v1/identities.createIdentity', { schema: createIdentity }, async (request) => {
    requireRoot(callerOf(request), 'create_identity');
    const { externalId, waitMs, enabled, meta = {}, ratelimits = [], apiIds } = request.body;
    checkMeta(meta);
    checkLimits(ratelimits);
    const fields = { enabled, meta, ratelimits, ...(apiIds ? { apiIds } : {}) };
    note(request, { externalId, identityId: identityIdOf(externalId) });
    const record = recordChange(request, storedFields(fields));
    return identities.create({ externalId, ...fields }, waitMs, ({ sequence }) => record({ sequence }));
  });

  app.get('/v1/identities.getIdentity', { schema: getIdentity }, async (request) => {
    requireRoot(callerOf(request), 'read_identity');
    const identity = await identities.get(idIn(request.query));
    if (!identity) throw notFound();
    return identity;
  });

  app.get('/v1/identities.listIdentities', { schema: listIdentities }, async (request) => {
    requireRoot(callerOf(request), 'read_identity');
    const { limit, cursor } = request.query;
    const [from] = cursor === undefined ? [] : openCursor(cursor, PLACE, 'listIdentities');
    const { next, ...page } = await identities.list(
      Number(limit),
      from === undefined ? undefined : Number(from),
    );
    return { ...page, ...(next === undefined ? {} : { cursor: makeCursor(`identity:${next}`) }) };
  });

  app.post(
    '/v1/identities.updateIdentity',
    { schema: updateIdentity, config: neverShed },
    async (request) => {
      requireRoot(callerOf(request), 'update_identity');
      const { waitMs, enabled, meta, ratelimits, apiIds, ...which } = request.body;
      if (meta) checkMeta(meta);
      checkLimits(ratelimits);
      const fields = storedFields({
        ...(enabled === undefined ? {} : { enabled }),
        ...(meta === undefined ? {} : { meta }),
        ...(ratelimits === undefined ? {} : { ratelimits }),
        ...(apiIds === undefined ? {} : { apiIds }),
      });
      if (Object.keys(fields).length === 0)
        throw new ApiError('BAD_REQUEST', 'body: names no field to change');
      const identityId = idIn(which);
      note(request, { identityId });
      if (apiIds !== undefined) await holdOff(identityId, apiIds);
      const write = { apiId: WORKSPACE, operation: 'update', keyId: identityId, fields } as const;
      const propagation = await propagator.apply(write, waitMs, recordChange(request, fields));
      const identity = await identities.get(identityId);
      if (!propagation || !identity) throw notFound();
      const mayRead = callerOf(request).permissions.allowsRoot('read_identity');
      return { ...(mayRead ? identity : { id: identityId }), propagation };
    },
  );

  app.post(
    '/v1/identities.deleteIdentity',
    { schema: deleteIdentity, config: neverShed },
    async (request) => {
      requireRoot(callerOf(request), 'delete_identity');
      const { identityId, waitMs } = request.body;
      const condition = await identities.toDelete(identityId);
      if (condition === undefined) throw notFound();
      const write = {
        apiId: WORKSPACE,
        operation: 'delete',
        keyId: identityId,
        fields: {},
        condition,
      } as const;
      const propagation = await propagator.apply(write, waitMs, recordChange(request));
      if (!propagation) throw notFound();
      return { propagation };
    },
  );

  app.get('/v1/identities.getIdentityPropagation', { schema: getIdentityPropagation }, async (request) => {
    requireRoot(callerOf(request), 'read_identity');
    const { identityId, sequence } = request.query;
    const propagation = await propagator.status(WORKSPACE, identityId, Number(sequence));
    if (!propagation) throw notFound();
    return { propagation };
  });

  /** An identity that is to hold in other APIs meets their verifiers. */
  async function holdOff(identityId: string, apiIds: readonly string[] | null): Promise<void> {
    const identity = await identities.get(identityId);
    if (identity) await identities.holdOff(identity.externalId, apiIds ?? undefined);
  }

  function idIn({ identityId, externalId }: { identityId?: string; externalId?: string }) {
    if ((identityId === undefined) === (externalId === undefined))
      throw new ApiError('BAD_REQUEST', 'identityId: give either this or externalId');
    return identityId ?? identityIdOf(externalId ?? '');
  }
}
