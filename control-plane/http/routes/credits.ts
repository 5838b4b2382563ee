import { ApiError } from '#shared/errors.ts';
import { hashSecret } from '#shared/key-format.ts';
import type { CreditsChange, Written } from '../../core/change-log.ts';
import type { Propagator } from '../../core/propagation.ts';
import type { Credits } from '../../redis/credits.ts';
import type { Keys } from '../../redis/keys.ts';
import { neverShed } from '../load-shedding.ts';
import { updateRemaining } from '../operations/keys.ts';
import type { App } from '../server.ts';
import { recordChange } from './audit-hooks.ts';
import { recordNotFound, requireKey } from './authorization.ts';

/** Operations on the credits of keys. */
export function creditRoutes(
  app: App,
  { keys, credits, propagator }: { keys: Keys; credits: Credits; propagator: Propagator },
) {
  app.post('/v1/keys.updateRemaining', { schema: updateRemaining, config: neverShed }, async (request) => {
    const { keyId, op, value, operationId, waitMs } = request.body;
    const apiId = await requireKey(keys, request, keyId, 'update_key');
    // As a hash: a secret that somebody sends in its place is kept nowhere.
    const named = operationId === undefined ? {} : { operation: hashSecret(operationId) };
    const change = { ...changeOf(op, value), ...named };
    let written: Written | undefined;
    const noted = recordChange(request, {}, change);
    const propagation = await propagator.apply(
      { apiId, operation: 'update', keyId, fields: {}, credits: change },
      waitMs,
      (what) => {
        written = what;
        noted(what);
      },
    );
    if (!propagation || !written) throw await recordNotFound(keys, apiId, keyId);
    const { remaining = null, isOwed = false } = written.credits ?? {};
    if (!isOwed || propagation.state !== 'complete') return { remaining, propagation };
    return { remaining: (await credits.settle(apiId, keyId)) ?? null, propagation };
  });
}

function changeOf(op: 'set' | 'increment' | 'decrement', value: number | null): CreditsChange {
  if (value !== null) return { op, value };
  if (op === 'set') return { op: 'none' };
  throw new ApiError('BAD_REQUEST', `value: must be a number where op is ${op}`);
}
