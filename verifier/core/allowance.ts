import type { Entry } from './key-cache.ts';
import type { Instant } from './lease.ts';
import { isPlaces, type Limit, limitPool } from './limits.ts';
import type { EffectivePermissions } from './permissions.ts';
import type { Pool, Waiter } from './pool.ts';
import type { HoldRequest, Requirements } from './question.ts';

/** The need of a request in one pool. */
export interface Need {
  readonly pool: Pool;
  readonly cost: number;
  /** undefined = the need is for credits. */
  readonly limit: Limit | undefined;
  /** True = it must be there, but is not taken: a place, for a question without a hold. */
  readonly isOnlySeen?: boolean;
}

/** The state of a rate limit or a concurrency limit after a verification. */
export interface LimitOutcome {
  readonly limit: Limit;
  readonly remaining: number;
  /** End of the current window, in Unix milliseconds; of places 0. */
  readonly reset: number;
  /** True if this limit is the reason why the key was refused. */
  readonly exceeded: boolean;
}

/** The outcome of a request that paid, or was refused. */
export interface Spending {
  readonly code: 'VALID' | 'RATE_LIMITED' | 'USAGE_EXCEEDED' | 'CONCURRENCY_EXCEEDED';
  /** Credits left; undefined = unlimited. */
  readonly remaining?: number | undefined;
  /** Limits that applied to the request. */
  readonly limits?: readonly LimitOutcome[] | undefined;
  /** Concurrency limits that applied to it. */
  readonly places?: readonly LimitOutcome[] | undefined;
  /** Milliseconds until a refused request may be repeated; undefined = unknown, or not refused. */
  readonly retryMs?: number | undefined;
}

/** Returns true if a request about this key may be refused because of credits or rate limits. */
export const isMetered = (
  { pool, limits }: Entry,
  requirements: Requirements,
  effectivePermissions: EffectivePermissions | undefined,
): boolean =>
  pool !== '' ||
  limits !== undefined ||
  requirements.limits.length > 0 ||
  (effectivePermissions?.identity && effectivePermissions.identity.pool !== '') ||
  effectivePermissions?.identity?.limits?.[0]?.isAutoApplied === true ||
  effectivePermissions?.limits?.[0]?.isAutoApplied === true;

/**
 * Returns all needs of a request. Rate limits come first, because they refuse before credits do. Of limits with one
 * name, that of the key applies, or else that of its identity, or else that of its roles.
 * @param holds true = the request takes places; false = they must only be free
 * @returns the name of a limit in the question that none of them has
 */
export function needsOf(
  entry: Entry,
  requirements: Requirements,
  effectivePermissions: EffectivePermissions | undefined,
  holds: boolean,
): Need[] | string {
  const { epoch, limitsId, limits } = entry;
  const needs: Need[] = [];
  if (limits?.[0]?.isAutoApplied) addAlways(needs, entry, limits, requirements, holds);
  if (effectivePermissions) addShared(needs, entry, requirements, effectivePermissions, holds);
  for (const { name, cost, own } of requirements.limits) {
    const ofKey = own ?? limitNamed(limits, name);
    const ofIdentity = ofKey ? undefined : limitNamed(effectivePermissions?.identity?.limits, name);
    const limit = ofKey ?? ofIdentity ?? limitNamed(effectivePermissions?.limits, name);
    if (limit === undefined || (isPlaces(limit) && cost !== 0)) return name;
    // With cost 0 the request has its place already.
    if (isPlaces(limit)) continue;
    const pool = ofKey
      ? epoch.pools.get(limitPool(limitsId, limit), limit)
      : poolFor(entry, limit, effectivePermissions, ofIdentity !== undefined);
    needs.push({ pool, cost, limit });
  }
  const credits = creditsFor(entry, effectivePermissions);
  if (credits) needs.push({ pool: credits, cost: requirements.cost, limit: undefined });
  return needs;
}

/** The pool of the key's own credits, or else of its identity's; undefined = unlimited credits. */
function creditsFor(
  { epoch, pool }: Entry,
  effectivePermissions: EffectivePermissions | undefined,
): Pool | undefined {
  if (pool !== '') return epoch.pools.get(pool);
  const { identity, pools } = effectivePermissions ?? {};
  return identity && identity.pool !== '' ? pools?.get(identity.pool) : undefined;
}

/** Adds the key's limits that apply to each verification, except those that the question names. */
function addAlways(
  needs: Need[],
  entry: Entry,
  limits: readonly Limit[],
  requirements: Requirements,
  holds: boolean,
): void {
  const [first] = limits;
  for (const limit of limits) {
    if (!limit.isAutoApplied) return;
    if (names(requirements, limit.name)) continue;
    const pool = limit === first ? entry.nameOfFirst(limit) : limitPool(entry.limitsId, limit);
    needs.push(needFor(entry.epoch.pools.get(pool, limit), limit, holds));
  }
}

/** Returns true if a question whose needs are met has something to release. */
export const hasHeld = (needs: readonly Need[], { onlyWith }: HoldRequest): boolean =>
  onlyWith === undefined ||
  needs.some(({ limit }) => (limit === undefined ? onlyWith === 'placesOrCredits' : isPlaces(limit)));

const needFor = (pool: Pool, limit: Limit, holds: boolean): Need =>
  holds || !isPlaces(limit) ? { pool, cost: 1, limit } : { pool, cost: 1, limit, isOnlySeen: true };

/**
 * Adds the limits of the identity and the roles that apply to each verification, except those that the question names,
 * and those of a name that one before them has.
 */
function addShared(
  needs: Need[],
  entry: Entry,
  requirements: Requirements,
  effectivePermissions: EffectivePermissions,
  holds: boolean,
): void {
  const { identity, limits: ofRoles } = effectivePermissions;
  for (const limits of [identity?.limits, ofRoles])
    for (const limit of limits ?? []) {
      const { name, isAutoApplied } = limit;
      if (!isAutoApplied) break;
      const isOfIdentity = limits !== ofRoles;
      if (names(requirements, name) || limitNamed(entry.limits, name)) continue;
      if (!isOfIdentity && limitNamed(identity?.limits, name)) continue;
      needs.push(needFor(poolFor(entry, limit, effectivePermissions, isOfIdentity), limit, holds));
    }
}

/** The pool of a limit of the identity or a role: that of the identity, if its keys share the limit. */
function poolFor(
  { epoch, limitsId }: Entry,
  limit: Limit,
  effectivePermissions: EffectivePermissions | undefined,
  isOfIdentity: boolean,
): Pool {
  const { identity, pools } = effectivePermissions ?? {};
  return identity && pools && (isOfIdentity || limit.isPerIdentity)
    ? pools.get(limitPool(identity.id, limit), limit)
    : epoch.pools.get(limitPool(limitsId, limit), limit);
}

const limitNamed = (limits: readonly Limit[] | undefined, limitName: string): Limit | undefined =>
  limits?.find(({ name }) => name === limitName);

const names = ({ limits }: Requirements, limitName: string): boolean =>
  limits.length > 0 && limits.some(({ name }) => name === limitName);

/**
 * Takes all needs, or nothing if any pool has too little; undefined = the caller must ask Redis first.
 * @param now this instant
 */
export function spend(needs: readonly Need[], now: Instant): Spending | undefined {
  const nowMs = now.monotonicMs;
  let refusedNeed: Need | undefined;
  let isKnown = true;
  for (const need of needs) {
    const outlook = need.pool.look(need.cost, now);
    if (outlook === 'too little') refusedNeed ??= need;
    else if (outlook === undefined) isKnown = false;
  }
  if (refusedNeed === undefined) {
    if (!isKnown) return undefined;
    for (const { pool, cost, isOnlySeen } of needs) pool.take(isOnlySeen ? 0 : cost, nowMs);
  }
  let remaining: number | undefined;
  let limits: LimitOutcome[] | undefined;
  let places: LimitOutcome[] | undefined;
  for (const need of needs) {
    const { pool, cost, limit } = need;
    if (!isKnown && pool.look(cost, now) === undefined) continue;
    if (limit === undefined) remaining = pool.remaining;
    else {
      const state = {
        limit,
        remaining: pool.remaining,
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
  return { code, remaining, limits, places, retryMs: refusedNeed.pool.retryMs };
}

const codeFor = ({ limit }: Need): Spending['code'] =>
  limit === undefined ? 'USAGE_EXCEEDED' : isPlaces(limit) ? 'CONCURRENCY_EXCEEDED' : 'RATE_LIMITED';

/** Requests from Redis everything that is not held locally, and reserves the rest until the reply comes. */
export function ask(needs: readonly Need[], waiter: Waiter, now: Instant): void {
  for (const { pool, cost } of needs) {
    if (pool.look(cost, now) === undefined) pool.ask(waiter, cost);
    else pool.keep(waiter, cost);
  }
}

/** Gives back what was granted to a request that was then refused for another reason. */
export function giveBack(needs: readonly Need[]): void {
  for (const { pool } of needs) if (pool.available > 0) pool.giveBack();
}
