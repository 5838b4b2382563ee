import { DEFAULT_LIMIT } from '#shared/contract/credits.ts';
import type { Grants } from '../grants.ts';
import type { Entry } from '../key-cache.ts';
import type { Requirements } from '../question/requirements.ts';
import { type Limit, limitPool } from './limits.ts';
import type { Pool } from './pool.ts';
import type { Waiter } from './waiters.ts';

/** Need of a request in one pool. */
export interface Claim {
  readonly pool: Pool;
  readonly cost: number;
  /** undefined = it is about credits. */
  readonly limit: Limit | undefined;
}

/** State of a rate limit after a verification. */
export interface LimitOutcome {
  readonly of: Limit;
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
export const hasPrice = ({ pool, limits }: Entry, requirements: Requirements): boolean =>
  pool !== '' || limits !== undefined || requirements.limits.length > 0;

/**
 * All that a request needs, rate limits first: they refuse before credits do.
 * @param grants whose identity has the limits that all keys of an owner share; the key's own come first
 * @returns the name of a limit that neither has, where the request names one
 */
export function claimsOf(entry: Entry, requirements: Requirements, grants?: Grants): Claim[] | string {
  const { epoch, keyId, pool, limits } = entry;
  const claims: Claim[] = [];
  const first = limits?.[0];
  if (first?.name === DEFAULT_LIMIT && !names(requirements, DEFAULT_LIMIT))
    claims.push({ pool: epoch.pools.get(entry.nameOfFirst(first), first), cost: 1, limit: first });
  for (const { name, cost, own } of requirements.limits) {
    const limit = own ?? named(limits, name);
    const shared = limit ?? named(grants?.identity?.limits, name);
    if (!shared) return name;
    const [pools, id] =
      limit || !grants?.identity ? [epoch.pools, keyId] : [grants.pools, grants.identity.id];
    claims.push({ pool: pools.get(limitPool(id, shared), shared), cost, limit: shared });
  }
  if (pool !== '') claims.push({ pool: epoch.pools.get(pool), cost: requirements.cost, limit: undefined });
  return claims;
}

const named = (limits: readonly Limit[] | undefined, wanted: string): Limit | undefined =>
  limits?.find(({ name }) => name === wanted);

const names = ({ limits }: Requirements, wanted: string): boolean =>
  limits.length > 0 && limits.some(({ name }) => name === wanted);

/**
 * Takes everything, or nothing where anything is too little; undefined = Redis must be asked first.
 * @param nowMs of the monotonic clock
 */
export function spend(claims: readonly Claim[], nowMs: number): Spending | undefined {
  let refused: Claim | undefined;
  let isKnown = true;
  for (const claim of claims) {
    const outlook = claim.pool.look(claim.cost, nowMs);
    if (outlook === 'too little') refused ??= claim;
    else if (outlook === undefined) isKnown = false;
  }
  if (refused === undefined) {
    if (!isKnown) return undefined;
    for (const { pool, cost } of claims) pool.take(cost, nowMs);
  }
  let remaining: number | undefined;
  let limits: LimitOutcome[] | undefined;
  for (const claim of claims) {
    const { pool, cost, limit } = claim;
    if (!isKnown && pool.look(cost, nowMs) === undefined) continue;
    if (limit === undefined) remaining = pool.remaining;
    else {
      limits ??= [];
      const [left, reset] = [pool.remaining, pool.resetMs(nowMs)];
      limits.push({ of: limit, remaining: left, reset, exceeded: claim === refused });
    }
  }
  if (refused === undefined) return { code: 'VALID', remaining, limits, retryMs: undefined };
  const code = refused.limit ? 'RATE_LIMITED' : 'USAGE_EXCEEDED';
  return { code, remaining, limits, retryMs: refused.pool.retryMs };
}

/** Has Redis asked for all that is not here, and the rest kept until that comes. */
export function ask(claims: readonly Claim[], waiter: Waiter, nowMs: number): void {
  for (const { pool, cost } of claims) {
    if (pool.look(cost, nowMs) === undefined) pool.ask(waiter, cost);
    else pool.keep(waiter, cost);
  }
}

/** Gives back what came for a request that was refused for something else. */
export function giveBack(claims: readonly Claim[]): void {
  for (const { pool } of claims) if (pool.available > 0) pool.giveBack();
}
