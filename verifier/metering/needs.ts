import type { Pool } from '#shared/metering/pool.ts';
import { poolsOf } from '#shared/metering/pools.ts';
import type { Instant } from '#shared/process/clock.ts';
import type { Entry } from '#shared/protocol/follower/key-cache.ts';
import type { EffectivePermissions } from '#shared/protocol/follower/permissions.ts';
import { isPlaces, type Limit, limitPool } from '#shared/protocol/records/limits-in-memory.ts';
import { type HoldRequest, LOOK, type Question, type Requirements } from '../core/question.ts';
import { lowered, type Need } from './allowance.ts';

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

/** Returns a need with the amount that its hold takes now. */
export type Choose = (need: Need, now: Instant) => Need;

/** Lowers the cost of a need to what is there, but not below the least that its hold takes. */
export const atLeast: Choose = (need, now) => lowered(need, need.least ?? need.cost, now);

/**
 * Returns all needs of a request, in the order in which they refuse it: rate limits, then places, then credits. Of limits
 * with one name, that of the key applies, or else that of its identity, or else that of its roles.
 * @param question.hold undefined = places must only be free, and are not taken
 * @param choose returns a need whose hold may take less, with the amount that it takes
 * @returns the name of a limit in the question that none of them has
 */
export function needsOf(
  entry: Entry,
  { requirements, hold }: Pick<Question, 'requirements' | 'hold'>,
  effectivePermissions: EffectivePermissions | undefined,
  choose: Choose = atLeast,
): Need[] | string {
  if (requirements === LOOK) return everyNeed(entry, effectivePermissions);
  const { epoch, limitsId, limits } = entry;
  const needs: Need[] = [];
  const places: Need[] = [];
  const add = (pool: Pool, limit: Limit) => {
    if (isPlaces(limit)) places.push({ pool, cost: 1, limit, isOnlySeen: hold === undefined });
    else needs.push({ pool, cost: 1, limit });
  };
  if (limits?.[0]?.isAutoApplied) addAlways(add, entry, limits, requirements);
  if (effectivePermissions) addShared(add, entry, requirements, effectivePermissions);
  for (const { name, cost, own, isHeld, isOptional, least } of requirements.limits) {
    const ofKey = own ?? limitNamed(limits, name);
    const ofIdentity = ofKey ? undefined : limitNamed(effectivePermissions?.identity?.limits, name);
    const limit = ofKey ?? ofIdentity ?? limitNamed(effectivePermissions?.limits, name);
    if (limit === undefined && isOptional) continue;
    if (limit === undefined || (isPlaces(limit) && cost !== 0)) return name;
    // With cost 0 the request has its place already.
    if (isPlaces(limit)) continue;
    const pool = ofKey
      ? poolsOf(epoch.companion).get(limitPool(limitsId, limit), limit, entry.obeyedAtMs)
      : poolFor(entry, limit, effectivePermissions, ofIdentity !== undefined);
    const need = { pool, cost, limit, isHeld };
    needs.push(least === undefined ? need : choose({ ...need, least }, epoch.lease.latestCheck));
  }
  needs.push(...places);
  const credits = creditsFor(entry, effectivePermissions);
  if (credits) {
    const need = { pool: credits, cost: requirements.cost, limit: undefined };
    const least = hold?.leastCredits;
    needs.push(least === undefined ? need : choose({ ...need, least }, epoch.lease.latestCheck));
  }
  return needs;
}

/** Returns all that may limit the key, to be looked at and not taken. */
function everyNeed(entry: Entry, effectivePermissions: EffectivePermissions | undefined): Need[] {
  const { identity, limits: ofRoles = [] } = effectivePermissions ?? {};
  const { epoch, limitsId, limits: own = [] } = entry;
  const shared = identity?.limits ?? [];
  const needs: Need[] = [...own, ...shared, ...ofRoles]
    .filter(({ name }, i, all) => all.findIndex((each) => each.name === name) === i)
    .map((limit) => ({
      pool: own.includes(limit)
        ? poolsOf(epoch.companion).get(limitPool(limitsId, limit), limit, entry.obeyedAtMs)
        : poolFor(entry, limit, effectivePermissions, shared.includes(limit)),
      ...{ cost: 0, limit, isOnlySeen: true },
    }));
  const credits = creditsFor(entry, effectivePermissions);
  return credits ? [...needs, { pool: credits, cost: 0, limit: undefined }] : needs;
}

/** The pool of the key's own credits, or else of its identity's; undefined = unlimited credits. */
function creditsFor(
  { epoch, pool }: Entry,
  effectivePermissions: EffectivePermissions | undefined,
): Pool | undefined {
  if (pool !== '') return poolsOf(epoch.companion).get(pool);
  if (!effectivePermissions?.identity) return undefined;
  const { identity, companion } = effectivePermissions;
  return identity.pool !== '' ? poolsOf(companion).get(identity.pool) : undefined;
}

/** Adds the key's limits that apply to each verification, except those that the question names. */
function addAlways(
  add: (pool: Pool, limit: Limit) => void,
  entry: Entry,
  limits: readonly Limit[],
  requirements: Requirements,
): void {
  const [first] = limits;
  for (const limit of limits) {
    if (!limit.isAutoApplied) return;
    if (names(requirements, limit)) continue;
    const pool = limit === first ? entry.nameOfFirst(limit) : limitPool(entry.limitsId, limit);
    add(poolsOf(entry.epoch.companion).get(pool, limit, entry.obeyedAtMs), limit);
  }
}

/** Returns true if a question whose needs are met has something to release. */
export const hasHeld = (needs: readonly Need[], { onlyWith }: HoldRequest): boolean =>
  onlyWith === undefined ||
  needs.some(({ limit, isHeld }) =>
    limit === undefined ? onlyWith === 'placesOrCredits' : isHeld || isPlaces(limit),
  );

/**
 * Adds the limits of the identity and the roles that apply to each verification, except those that the question names,
 * and those of a name that one before them has.
 */
function addShared(
  add: (pool: Pool, limit: Limit) => void,
  entry: Entry,
  requirements: Requirements,
  effectivePermissions: EffectivePermissions,
): void {
  const { identity, limits: ofRoles } = effectivePermissions;
  for (const limits of [identity?.limits, ofRoles])
    for (const limit of limits ?? []) {
      const { name, isAutoApplied } = limit;
      if (!isAutoApplied) break;
      const isOfIdentity = limits !== ofRoles;
      if (names(requirements, limit) || limitNamed(entry.limits, name)) continue;
      if (!isOfIdentity && limitNamed(identity?.limits, name)) continue;
      add(poolFor(entry, limit, effectivePermissions, isOfIdentity), limit);
    }
}

/** The pool of a limit of the identity or a role: that of the identity, if its keys share the limit. */
function poolFor(
  { epoch, limitsId, join, obeyedAtMs: ofKeyMs }: Entry,
  limit: Limit,
  effectivePermissions: EffectivePermissions | undefined,
  isOfIdentity: boolean,
): Pool {
  const { identity, companion } = effectivePermissions ?? {};
  const obeyedAtMs = join?.obeyedAtMs ?? 0;
  return identity && companion && (isOfIdentity || limit.isPerIdentity)
    ? poolsOf(companion).get(limitPool(identity.id, limit), limit, obeyedAtMs)
    : poolsOf(epoch.companion).get(limitPool(limitsId, limit), limit, Math.max(obeyedAtMs, ofKeyMs));
}

const limitNamed = (limits: readonly Limit[] | undefined, limitName: string): Limit | undefined =>
  limits?.find(({ name }) => name === limitName);

/** Returns true if the question says itself what is taken of a limit. A rate limit of its own is no place. */
const names = ({ limits }: Requirements, limit: Limit): boolean =>
  limits.length > 0 &&
  limits.some(({ name, own }) => name === limit.name && (own === undefined || !isPlaces(limit)));
