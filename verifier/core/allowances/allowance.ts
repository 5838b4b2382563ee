import { DEFAULT_LIMIT } from '#shared/contract/credits.ts';
import type { EffectivePermissions } from '../effective-permissions.ts';
import type { Entry } from '../key-cache.ts';
import type { Requirements } from '../question/requirements.ts';
import { type Limit, limitPool } from './limits.ts';
import type { Pool } from './pool.ts';
import type { Waiter } from './waiters.ts';

/** Need of a request in one pool. */
export interface Need {
  readonly pool: Pool;
  readonly cost: number;
  /** undefined = it is about credits. */
  readonly limit: Limit | undefined;
}

/** State of a rate limit after a verification. */
export interface LimitOutcome {
  readonly limit: Limit;
  readonly remaining: number;
  /** When the present window ends, Unix milliseconds. */
  readonly reset: number;
  /** True if this limit is why the key was refused. */
  readonly exceeded: boolean;
}

/** Outcome of a request that was paid for, or refused. */
export interface Spending {
  readonly code: 'VALID' | 'RATE_LIMITED' | 'USAGE_EXCEEDED';
  /** Credits left; undefined = there are none to count. */
  readonly remaining?: number | undefined;
  /** Limits that were looked at. */
  readonly limits?: readonly LimitOutcome[] | undefined;
  /** Time until a refused request may be made again; undefined = nobody knows, or it was not refused. */
  readonly retryMs?: number | undefined;
}

/** True if a request about this key may be refused for how much the key is used. */
export const isMetered = ({ pool, limits }: Entry, requirements: Requirements): boolean =>
  pool !== '' || limits !== undefined || requirements.limits.length > 0;

/**
 * All that a request needs, rate limits first: they refuse before credits do.
 * @param effectivePermissions whose identity has the limits that all keys of an owner share; the key's own come first
 * @returns the name of a limit that neither has, where the request names one
 */
export function needsOf(
  entry: Entry,
  requirements: Requirements,
  effectivePermissions?: EffectivePermissions,
): Need[] | string {
  const { epoch, keyId, pool, limits } = entry;
  const needs: Need[] = [];
  const first = limits?.[0];
  if (first?.name === DEFAULT_LIMIT && !names(requirements, DEFAULT_LIMIT))
    needs.push({ pool: epoch.pools.get(entry.nameOfFirst(first), first), cost: 1, limit: first });
  for (const { name, cost, own } of requirements.limits) {
    const limit = own ?? limitNamed(limits, name);
    const shared = limit ?? limitNamed(effectivePermissions?.identity?.limits, name);
    if (!shared) return name;
    const [pools, id] =
      limit || !effectivePermissions?.identity
        ? [epoch.pools, keyId]
        : [effectivePermissions.pools, effectivePermissions.identity.id];
    needs.push({ pool: pools.get(limitPool(id, shared), shared), cost, limit: shared });
  }
  if (pool !== '') needs.push({ pool: epoch.pools.get(pool), cost: requirements.cost, limit: undefined });
  return needs;
}

const limitNamed = (limits: readonly Limit[] | undefined, limitName: string): Limit | undefined =>
  limits?.find(({ name }) => name === limitName);

const names = ({ limits }: Requirements, limitName: string): boolean =>
  limits.length > 0 && limits.some(({ name }) => name === limitName);

/**
 * Takes everything, or nothing where anything is too little; undefined = Redis must be asked first.
 * @param nowMs of the monotonic clock
 */
export function spend(needs: readonly Need[], nowMs: number): Spending | undefined {
  let refusedNeed: Need | undefined;
  let isKnown = true;
  for (const need of needs) {
    const outlook = need.pool.look(need.cost, nowMs);
    if (outlook === 'too little') refusedNeed ??= need;
    else if (outlook === undefined) isKnown = false;
  }
  if (refusedNeed === undefined) {
    if (!isKnown) return undefined;
    for (const { pool, cost } of needs) pool.take(cost, nowMs);
  }
  let remaining: number | undefined;
  let limits: LimitOutcome[] | undefined;
  for (const need of needs) {
    const { pool, cost, limit } = need;
    if (!isKnown && pool.look(cost, nowMs) === undefined) continue;
    if (limit === undefined) remaining = pool.remaining;
    else {
      limits ??= [];
      const [remainingCount, reset] = [pool.remaining, pool.resetMs(nowMs)];
      limits.push({ limit, remaining: remainingCount, reset, exceeded: need === refusedNeed });
    }
  }
  if (refusedNeed === undefined) return { code: 'VALID', remaining, limits, retryMs: undefined };
  const code = refusedNeed.limit ? 'RATE_LIMITED' : 'USAGE_EXCEEDED';
  return { code, remaining, limits, retryMs: refusedNeed.pool.retryMs };
}

/** Has Redis asked for all that is not here, and the rest kept until that comes. */
export function ask(needs: readonly Need[], waiter: Waiter, nowMs: number): void {
  for (const { pool, cost } of needs) {
    if (pool.look(cost, nowMs) === undefined) pool.ask(waiter, cost);
    else pool.keep(waiter, cost);
  }
}

/** Gives back what came for a request that was refused for something else. */
export function giveBack(needs: readonly Need[]): void {
  for (const { pool } of needs) if (pool.available > 0) pool.giveBack();
}
