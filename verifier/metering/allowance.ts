import type { Waiter } from '#shared/metering/demand.ts';
import type { Pool } from '#shared/metering/pool.ts';
import type { Instant } from '#shared/process/clock.ts';
import { isPlaces, type Limit } from '#shared/protocol/records/limits-in-memory.ts';
import type { LimitOutcome, Spending } from '../core/verdict.ts';

/** The need of a request in one pool. */
export interface Need {
  readonly pool: Pool;
  /** Amount that the request takes. */
  readonly cost: number;
  /** The least that a hold takes, if the whole cost is not there; undefined = the whole cost. */
  readonly least?: number | undefined;
  /** Number of times that the cost was lowered; undefined = 0. */
  readonly lowered?: number | undefined;
  /** undefined = the need is for credits. */
  readonly limit: Limit | undefined;
  /** True = it must be there, but is not taken: a place, for a question without a hold. */
  readonly isOnlySeen?: boolean;
  /** True = a part of a rate limit that may come back when the work ends. */
  readonly isHeld?: boolean | undefined;
}

/** Returns the outlook for a need; undefined = Redis must be asked. */
export const look = ({ pool, cost, limit }: Need, now: Instant) => pool.look(cost, now, limit?.limit);

/** Number of times that a cost is lowered to what is left. Then it falls faster: others take that meanwhile, or do not give it back. */
const CLOSE_MAX = 2;

/** Returns a need whose cost is lowered, down to `least`, until it is not known to be too much. */
export function lowered(need: Need, least: number, now: Instant): Need {
  let lower = need;
  while (look(lower, now) === 'too little' && lower.cost > least) {
    const { pool, cost, limit, lowered = 0 } = lower;
    const part = Math.floor((cost - least) / 2 ** Math.max(0, lowered - CLOSE_MAX));
    lower = {
      ...lower,
      cost: Math.max(least, Math.min(cost - 1, pool.remaining(limit?.limit), least + part)),
      lowered: lowered + 1,
    };
  }
  return lower;
}

/**
 * Takes all needs, or nothing if any pool has too little; undefined = the caller must ask Redis first. A cost that is known
 * not to fit refuses before Redis is asked about the others.
 * @param now this instant
 * @param beforeHold undefined = the request holds nothing, and spends for good; called before anything is taken
 */
export function spend(needs: readonly Need[], now: Instant, beforeHold?: () => void): Spending | undefined {
  const nowMs = now.monotonicMs;
  let refusedNeed: Need | undefined;
  let isKnown = true;
  for (const need of needs) {
    const outlook = look(need, now);
    if (outlook === 'too little') refusedNeed ??= need;
    else if (outlook === undefined) isKnown = false;
  }
  if (refusedNeed === undefined) {
    if (!isKnown) return undefined;
    beforeHold?.();
    for (const { pool, cost, limit, isOnlySeen, isHeld } of needs)
      pool.take(isOnlySeen ? 0 : cost, nowMs, limit ? isHeld || isPlaces(limit) : beforeHold !== undefined);
  }
  let remaining: number | undefined;
  let limits: LimitOutcome[] | undefined;
  let places: LimitOutcome[] | undefined;
  for (const need of needs) {
    const { pool, limit } = need;
    if (!isKnown && look(need, now) === undefined) continue;
    if (limit === undefined) remaining = pool.remaining();
    else {
      const state = {
        limit,
        remaining: pool.remaining(limit.limit),
        reset: pool.resetMs(nowMs),
        exceeded: need === refusedNeed,
      };
      if (isPlaces(limit)) places = [...(places ?? []), state];
      else if (limits === undefined) limits = [state];
      else limits.push(state);
    }
  }
  if (refusedNeed === undefined) return { code: 'VALID', remaining, limits, places, retryMs: undefined };
  const code = codeFor(refusedNeed);
  const { pool, cost, limit } = refusedNeed;
  const needed = pool.neverFits(cost, limit?.limit) ? cost : undefined;
  return { code, remaining, limits, places, retryMs: pool.retryMs(cost, limit?.limit), needed };
}

const codeFor = ({ limit }: Need): Spending['code'] =>
  limit === undefined ? 'USAGE_EXCEEDED' : isPlaces(limit) ? 'CONCURRENCY_EXCEEDED' : 'RATE_LIMITED';

/** Requests from Redis everything that is not held locally, and reserves the rest until the reply comes. */
export function ask(needs: readonly Need[], waiter: Waiter, now: Instant): void {
  for (const need of needs) {
    const { pool, cost, limit } = need;
    if (look(need, now) === undefined) pool.ask(waiter, cost, limit?.limit);
    else pool.keep(waiter, cost, limit?.limit);
  }
}

/** Gives back what was granted to a request that was then refused for another reason. */
export function giveBack(needs: readonly Need[]): void {
  for (const { pool } of needs) if (pool.available > 0) pool.giveBack();
}
