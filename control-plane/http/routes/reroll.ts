import type { FastifyRequest } from 'fastify';
import type { Clock } from '#shared/clock.ts';
import { ApiError, unavailable } from '#shared/errors.ts';
import { hashSecret } from '#shared/key-format.ts';
import { shown } from '../../core/audit-event.ts';
import type { Written } from '../../core/change-log.ts';
import type { Propagator } from '../../core/propagation.ts';
import type { Keys } from '../../redis/keys.ts';
import type { Successors } from '../../redis/successors.ts';
import { neverShed } from '../load-shedding.ts';
import { rerollKey } from '../operations/keys.ts';
import type { App } from '../server.ts';
import { note } from './audit-hooks.ts';
import { callerOf, recordNotFound, requireApi, requireKey } from './authorization.ts';

/** Before every clock: whoever knows of it refuses the key, whatever its own says. */
const ENDED_MS = 1;

/** Giving keys new secrets. */
export function rerollRoutes(
  app: App,
  {
    keys,
    successors,
    propagator,
    clock,
  }: {
    keys: Keys;
    successors: Successors;
    propagator: Propagator;
    clock: Clock;
  },
) {
  app.post('/v1/keys.rerollKey', { schema: rerollKey, config: neverShed }, async (request) => {
    const { keyId, expiration, operationId: name, waitMs } = request.body;
    // As a hash: a secret that somebody sends in its place is kept nowhere.
    const operationId = name === undefined ? '' : `${hashSecret(name)} ${expiration}`;
    const apiId = await requireKey(keys, request, keyId, 'update_key');
    requireApi(callerOf(request), apiId, 'create_key', `key ${keyId}`);
    const latestMs = expiration === 0 ? ENDED_MS : clock.wallMs() + expiration;
    const offer = await successors.offer(apiId, keyId);
    if (!offer) throw await recordNotFound(keys, apiId, keyId);
    const successor = { ...offer.successor, latestMs, operationId };
    let written: Written | undefined;
    const write = { apiId, operation: 'update', keyId, fields: {}, successor } as const;
    const propagation = await propagator
      .apply(write, waitMs, (what) => {
        written = what;
        recordReroll(request, keyId, successor.keyId, what);
      })
      .catch(async (error: unknown) => {
        // Where the outcome is not known, the key may be there.
        const isNotThere = error instanceof ApiError && error.code !== 'SERVICE_UNAVAILABLE';
        if (isNotThere) await successors.withdraw(apiId, offer).catch(() => undefined);
        throw error;
      });
    if (!propagation || !written) {
      await successors.withdraw(apiId, offer).catch(() => undefined);
      throw await recordNotFound(keys, apiId, keyId);
    }
    const { expires, deleted } = written.rerolled ?? {};
    if (deleted) {
      await keys.forgetDeleted(apiId, [deleted]).catch((error: unknown) => {
        request.log.warn(
          { keyId: deleted.keyId, err: error },
          'pointers of a deleted key remain; they lead nowhere',
        );
      });
    }
    if (propagation.state !== 'complete' && !written.replicated) {
      const advice = `send it again with the same operationId, or reroll ${successor.keyId} with expiration 0`;
      throw unavailable(`not all replicas confirmed the new key, so it is not shown; ${advice}`);
    }
    const endsAt = Number(expires);
    return {
      keyId: successor.keyId,
      key: offer.secret,
      ...(endsAt > ENDED_MS ? { endsAt } : {}),
      propagation,
    };
  });
}

/** Gives the turn back, and records what became of both keys; the new one has an event of its own. */
function recordReroll(request: FastifyRequest, keyId: string, rerolledTo: string, written: Written): void {
  const { sequence, before, rerolled } = written;
  request.giveTurnBack?.();
  const deleted = rerolled?.deleted === undefined ? {} : { deleted: rerolled.deleted.keyId };
  note(
    request,
    {},
    {
      sequence,
      before: shown({ x: before?.x ?? '' }),
      after: { ...shown({ x: rerolled?.expires ?? '' }), rerolledTo, ...deleted },
    },
  );
  request.recordWritten();
  void request.recordKeys([{ keyId: rerolledTo, outcome: 'OK', effect: { after: { rerolledFrom: keyId } } }]);
}
