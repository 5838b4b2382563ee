import { LRUCache } from 'lru-cache';
import { flattenString } from '../../process/flatten-string.ts';
import {
  type Anchor,
  type ConcurrencyLimit,
  calendarOf,
  DEFAULT_LIMIT,
  type Interval,
  type RateLimit,
  type Thresholds,
} from '../records/credits.ts';
import type { KeyState } from '../records/key-record.ts';

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
  /** Present = its windows are periods of the calendar. */
  readonly interval?: Interval | undefined;
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

const limitOf = (
  name: string,
  limit: number,
  durationMs: number,
  isExact: boolean,
  options: {
    readonly isBrought?: boolean;
    readonly isAutoApplied?: boolean;
    readonly isPerIdentity?: boolean;
    readonly interval?: Interval | undefined;
    readonly anchor?: Anchor | undefined;
    readonly thresholds?: Thresholds | undefined;
  } = {},
): Limit => {
  const { isBrought = false, isAutoApplied = false, isPerIdentity = false, interval, anchor } = options;
  const calendar = interval && calendarOf(interval, anchor);
  // A limit's name contains nothing that JSON would escape.
  const about = `"name":"${name}","limit":${limit}${durationMs === 0 ? '' : `,"duration":${durationMs}`}`;
  return {
    ...{ name, limit, durationMs, interval, calendar, isExact, isBrought, isAutoApplied, isPerIdentity },
    thresholds: options.thresholds?.join(' '),
    suffix: `${calendar ?? durationMs}.${name}${isBrought ? `.${limit}` : ''}`,
    label: flattenString(`{${about}${interval ? `,"interval":"${interval}"` : ''},"remaining":`),
  };
};

/** A rate limit that a question names. */
export interface LimitRequirement {
  readonly name: string;
  readonly cost: number;
  /** The limit itself, if the question defines it. */
  readonly own?: Limit;
}

/** Returns the name of the pool of a limit of a key or an identity. */
export const limitPool = (id: string, { suffix }: Limit): string => `${id}.${suffix}`;

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
    ...rateLimits.map(({ name, limit, duration, async, autoApply = false, per, ...quota }) => {
      const scope = { isAutoApplied: autoApply, isPerIdentity: per === 'identity' };
      return limitOf(name, limit, duration, !async, { ...scope, ...quota });
    }),
    ...held.map(({ name, limit, per }) =>
      limitOf(name, limit, 0, false, { isAutoApplied: true, isPerIdentity: per === 'identity' }),
    ),
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
  limitOf(name, limit, durationMs, false, { isBrought: true });
