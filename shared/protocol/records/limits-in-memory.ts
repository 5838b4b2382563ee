import { LRUCache } from 'lru-cache';
import { flattenString } from '../../process/flatten-string.ts';
import type { KeyState } from './key-record.ts';
import {
  type ConcurrencyLimit,
  DEFAULT_LIMIT,
  poolName,
  poolSuffix,
  type RateLimit,
  type ShownLimit,
  shownLimit,
  windowsOf,
} from './limit.ts';

/** A rate limit: an amount in each window of some length. Or a concurrency limit: a number of places. */
export interface Window {
  readonly limit: number;
  /** Of a period of the calendar the longest; 0 = no window: the limit counts places, which come back. */
  readonly durationMs: number;
  /** The periods of the calendar that are its windows; undefined = windows of `durationMs`. */
  readonly calendar?: string | undefined;
  /** Per cents used of which webhooks tell, separated by spaces; undefined = none. */
  readonly thresholds?: string | undefined;
  /** True = no slices: each request asks Redis. */
  readonly isExact: boolean;
  /** True = a question defines the limit. The number of such limits per key is bounded. */
  readonly isBrought?: boolean | undefined;
}

/** True = a concurrency limit, which holds occupy. */
export const isPlaces = ({ durationMs }: Window): boolean => durationMs === 0;

/** A limit of a key. Keys with equal limits share one list. */
export interface Limit extends Window {
  readonly name: string;
  /** Its part of answers. */
  readonly view: ShownLimit;
  /** The part of its pool's name after the key's id and a point. */
  readonly suffix: string;
  /**
   * True = the limit applies to each verification; false = only to those that name it. Lists begin with the
   * true ones.
   */
  readonly isAutoApplied: boolean;
  /** True = a role's limit that all keys of an identity share. */
  readonly isPerIdentity: boolean;
  /** The beginning of its JSON in answers, up to the number that remains. */
  readonly label: string;
}

const limitOf = (of: RateLimit, isBrought = false): Limit => {
  const { name, limit, duration: durationMs } = of;
  const windows = windowsOf(of);
  const view = shownLimit(of);
  return {
    ...{ name, limit, durationMs, isExact: !of.async, isBrought, view },
    calendar: typeof windows === 'string' ? windows : undefined,
    isAutoApplied: of.autoApply === true,
    isPerIdentity: of.per === 'identity',
    thresholds: of.thresholds?.join(' '),
    suffix: poolSuffix(of, isBrought ? limit : undefined),
    label: flattenString(`${JSON.stringify(view).slice(0, -1)},"remaining":`),
  };
};

/** A rate limit that a question names. */
export interface LimitRequirement {
  readonly name: string;
  readonly cost: number;
  /** The limit itself, if the question defines it. */
  readonly own?: Limit;
  /** True = a hold reserves the amount, and its release says what is taken. */
  readonly isHeld?: boolean;
  /** The least that the hold takes, if the whole cost is not there; undefined = the whole cost. */
  readonly least?: number | undefined;
  /** True = a key without such a limit takes nothing. */
  readonly isOptional?: boolean;
}

/** Returns the name of the pool of a limit of a key or an identity. */
export const limitPool = (id: string, { suffix }: Limit): string => poolName(id, suffix);

/** Lists of limits by their text in Redis. */
const limitsByText = new LRUCache<string, readonly Limit[]>({ max: 1000 });

/**
 * Returns the limits of a key, the default limit first, then the others with `isAutoApplied`, concurrency limits last among
 * them; undefined = none.
 */
export function limitsOf({ ratelimit, ratelimits, concurrency }: KeyState): readonly Limit[] | undefined {
  const text = `${ratelimit} ${ratelimits} ${concurrency}`;
  if (text === '  ') return undefined;
  const present = limitsByText.get(text);
  if (present) return present;
  const rateLimits = [
    ...(ratelimit ? [{ ...(JSON.parse(ratelimit) as RateLimit), name: DEFAULT_LIMIT, autoApply: true }] : []),
    ...(ratelimits ? (JSON.parse(ratelimits) as RateLimit[]) : []),
  ];
  const held = concurrency ? (JSON.parse(concurrency) as ConcurrencyLimit[]) : [];
  const limits = autoAppliedFirst([
    ...rateLimits.map((limit) => limitOf(limit)),
    ...held.map((places) => limitOf({ ...places, duration: 0, async: true, autoApply: true })),
  ]);
  limitsByText.set(text, limits);
  return limits;
}

const autoAppliedFirst = (limits: readonly Limit[]): readonly Limit[] => [
  ...limits.filter((limit) => limit.isAutoApplied && !isPlaces(limit)),
  ...limits.filter(isPlaces),
  ...limits.filter(({ isAutoApplied }) => !isAutoApplied),
];

/** Returns the limits of several roles, the largest of each name, in the order of `limitsOf`; undefined = none. */
export function largestOf(all: readonly Limit[]): readonly Limit[] | undefined {
  const limits = new Map<string, Limit>();
  for (const each of all) {
    const other = limits.get(each.name);
    if (other === undefined || isLarger(each, other)) limits.set(each.name, each);
  }
  return limits.size === 0 ? undefined : autoAppliedFirst([...limits.values()]);
}

/** Compares rates. Concurrency limits have the duration 0: they are compared by their number, and count as more than any rate. */
const isLarger = (a: Limit, b: Limit): boolean =>
  a.durationMs === b.durationMs ? a.limit > b.limit : a.limit / a.durationMs > b.limit / b.durationMs;

/**
 * Returns a limit that a question defines. Its amount is part of its pool's name, so that limits of the same
 * name but with different amounts have separate pools.
 */
export const ownLimit = (name: string, limit: number, durationMs: number): Limit =>
  limitOf({ name, limit, duration: durationMs, async: true }, true);
