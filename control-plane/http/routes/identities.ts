import { ApiError, unavailable } from '#shared/errors.ts';
import { storedFields } from '#shared/key-record.ts';
import { WORKSPACE } from '#shared/redis/redis-keys.ts';
import { shown } from '../../core/audit-event.ts';
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
    const { externalId, enabled, meta = {}, ratelimits = [] } = request.body;
    checkMeta(meta);
    checkLimits(ratelimits);
    const fields = { enabled, meta, ratelimits };
    note(request, { externalId }, { after: shown(storedFields(fields)) });
    const created = await identities.create({ externalId, ...fields });
    note(request, { identityId: created.identityId });
    return created;
  });

  app.get('/v1/identities.getIdentity', { schema: getIdentity }, async (request) => {
    requireRoot(callerOf(request), 'read_identity');
    const identity = await identities.get(await idIn(request.query));
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
      const { waitMs, enabled, meta, ratelimits, ...which } = request.body;
      if (meta) checkMeta(meta);
      checkLimits(ratelimits);
      const fields = storedFields({
        ...(enabled === undefined ? {} : { enabled }),
        ...(meta === undefined ? {} : { meta }),
        ...(ratelimits === undefined ? {} : { ratelimits }),
      });
      if (Object.keys(fields).length === 0)
        throw new ApiError('BAD_REQUEST', 'body: names no field to change');
      const identityId = await idIn(which);
      note(request, { identityId });
      const write = { apiId: WORKSPACE, operation: 'update', keyId: identityId, fields } as const;
      const propagation = await propagator.apply(write, waitMs, recordChange(request, fields));
      const identity = await identities.get(identityId);
      if (!propagation || !identity) throw notFound();
      // A createIdentity, or an import, that was cut off may have left keys of the owner that do not know of it.
      const linked = enabled === false ? await identities.linkKeysOf(identity.externalId) : {};
      if (linked.propagation?.state === 'pending')
        throw unavailable(
          'it is disabled, but verifiers may not know yet that keys are its own: send the call again',
        );
      return { ...identity, propagation };
    },
  );

  app.post(
    '/v1/identities.deleteIdentity',
    { schema: deleteIdentity, config: neverShed },
    async (request) => {
      requireRoot(callerOf(request), 'delete_identity');
      const { identityId, waitMs } = request.body;
      const found = await identities.toDelete(identityId);
      if (!found) throw notFound();
      const { externalId, condition } = found;
      const write = {
        apiId: WORKSPACE,
        operation: 'delete',
        keyId: identityId,
        fields: {},
        condition,
      } as const;
      const leftMs = propagator.timeLeft(waitMs);
      const propagation = await propagator.apply(write, waitMs, recordChange(request));
      if (!propagation) throw notFound();
      await identities.linkKeysOf(externalId, false, leftMs).catch((err: unknown) => {
        request.log.warn({ identityId, err }, 'keys hold the id of a deleted identity; it is nobody');
      });
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

  async function idIn({ identityId, externalId }: { identityId?: string; externalId?: string }) {
    if ((identityId === undefined) === (externalId === undefined))
      throw new ApiError('BAD_REQUEST', 'identityId: give either this or externalId');
    const id = identityId ?? (externalId === undefined ? undefined : await identities.idOf(externalId));
    if (id === undefined) throw notFound();
    return id;
  }
}
