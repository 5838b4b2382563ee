import { DEFAULT_LIMIT } from '#shared/credits.ts';
import type { Entry } from './key-cache.ts';
import type { AskedLimit, Limit } from './limits.ts';
import type { Query } from './permissions.ts';
import type { Pool, Waiter } from './pool.ts';

/** Terms of a request: all that it asks of a key, besides to be good. */
export interface Terms {
  /** Price in credits, where it has any. */
  readonly cost: number;
  readonly limits: readonly AskedLimit[];
  /** Permissions that it must have; undefined = none. */
  readonly permissions: Query | undefined;
}
export const ORDINARY: Terms = Object.freeze({ cost: 1, limits: [], permissions: undefined });

/** Ordinary terms, and these permissions. */
export const needing = (permissions: Query): Terms => ({ ...ORDINARY, permissions });

/** Need of a request in one pool. */
export interface Claim {
  readonly pool: Pool;
  readonly cost: number;
  /** undefined = it is about credits. */
  readonly limit: Limit | undefined;
}

/** State of a rate limit after a verification. */
export interface ShownLimit {
  readonly name: string;
  readonly limit: number;
  /** Of a window, milliseconds. */
  readonly duration: number;
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
  readonly limits?: readonly ShownLimit[] | undefined;
  /** Time until a refused request may be made again; undefined = nobody knows, or it was not refused. */
  readonly retryMs?: number | undefined;
}

/** True if a request about this key may be refused for how much the key is used. */
export const hasPrice = ({ pool, limits }: Entry, terms: Terms): boolean =>
  pool !== '' || limits !== undefined || terms.limits.length > 0;

/**
 * All that a request needs, rate limits first: they refuse before credits do.
 * @returns the name of a limit that the key does not have, where the request names one
 */
export function claimsOf({ epoch, keyId, pool, limits = [] }: Entry, terms: Terms): Claim[] | string {
  const claims: Claim[] = [];
  const claim = (limit: Limit, cost: number) => {
    claims.push({ pool: epoch.pools.get(`${keyId}.${limit.suffix}`, limit), cost, limit });
  };
  const [first] = limits;
  const isNamed = terms.limits.some(({ name }) => name === DEFAULT_LIMIT);
  if (first?.name === DEFAULT_LIMIT && !isNamed) claim(first, 1);
  for (const { name, cost, own } of terms.limits) {
    const limit = own ?? limits.find((each) => each.name === name);
    if (!limit) return name;
    claim(limit, cost);
  }
  if (pool !== '') claims.push({ pool: epoch.pools.get(pool), cost: terms.cost, limit: undefined });
  return claims;
}

/** Takes everything, or nothing where anything is too little; undefined = Redis must be asked first. */
export function spend(claims: readonly Claim[], nowMs: number): Spending | undefined {
  const answers = claims.map(({ pool, cost }) => pool.look(cost));
  const refused = answers.findIndex((answer) => answer?.suffices === false);
  if (refused < 0) {
    if (answers.includes(undefined)) return undefined;
    for (const { pool, cost } of claims) pool.take(cost);
  }
  let remaining: number | undefined;
  const limits: ShownLimit[] = [];
  for (const [i, { pool, cost, limit }] of claims.entries()) {
    const answer = answers[i];
    if (!answer) continue;
    const left = refused >= 0 && answer.suffices ? answer.remaining + cost : answer.remaining;
    if (!limit) remaining = left;
    else {
      const { name, limit: most, durationMs: duration } = limit;
      const reset = Math.ceil(nowMs + pool.leftMs);
      limits.push({ name, limit: most, duration, remaining: left, reset, exceeded: i === refused });
    }
  }
  const claim = claims[refused];
  return {
    code: !claim ? 'VALID' : claim.limit ? 'RATE_LIMITED' : 'USAGE_EXCEEDED',
    remaining,
    limits: limits.length === 0 ? undefined : limits,
    retryMs: claim?.pool.retryMs,
  };
}

/** Has Redis asked for all that is not here. */
export function ask(claims: readonly Claim[], waiter: Waiter): void {
  for (const { pool, cost } of claims) if (pool.look(cost) === undefined) pool.ask(waiter, cost);
}

/** Gives back what came for a request that was refused for something else. */
export function giveBack(claims: readonly Claim[]): void {
  for (const { pool } of claims) if (pool.available > 0) pool.giveBack();
}
