import { LRUCache } from 'lru-cache';
import { DEFAULT_LIMIT, type RateLimit } from '#shared/contract/credits.ts';
import type { KeyState } from '#shared/contract/key-record.ts';
import { flattenString } from '#shared/lang/flatten-string.ts';
import type { Window } from './pool.ts';

/** A rate limit of a key. Keys with the same limits share one list of them. */
export interface Limit extends Window {
  readonly name: string;
  /** Behind the key's id and a point: the name of its pool. */
  readonly suffix: string;
  /** Beginning of what an answer tells of it, up to the number that remains. */
  readonly label: string;
}

const limitOf = (
  name: string,
  limit: number,
  durationMs: number,
  isExact: boolean,
  isBrought = false,
): Limit => ({
  ...{ name, limit, durationMs, isExact, isBrought },
  suffix: `${durationMs}.${name}${isBrought ? `.${limit}` : ''}`,
  // Names of limits hold nothing that JSON would escape.
  label: flattenString(`{"name":"${name}","limit":${limit},"duration":${durationMs},"remaining":`),
});

/** A rate limit that a request names. */
export interface LimitRequirement {
  readonly name: string;
  readonly cost: number;
  /** The limit itself, where the request brings it. */
  readonly own?: Limit;
}

/** Name of the pool of a key's limit. */
export const limitPool = (keyId: string, { suffix }: Limit): string => `${keyId}.${suffix}`;

/** Lists by the text that they were read from. */
const limitsByText = new LRUCache<string, readonly Limit[]>({ max: 1000 });

/** Limits of a key, the default one first; undefined = it has none. */
export function limitsOf({ ratelimit, ratelimits }: KeyState): readonly Limit[] | undefined {
  const text = `${ratelimit} ${ratelimits}`;
  if (text === ' ') return undefined;
  const present = limitsByText.get(text);
  if (present) return present;
  const rateLimits = [
    ...(ratelimit ? [{ ...(JSON.parse(ratelimit) as Omit<RateLimit, 'name'>), name: DEFAULT_LIMIT }] : []),
    ...(ratelimits ? (JSON.parse(ratelimits) as RateLimit[]) : []),
  ];
  const limits = rateLimits.map(({ name, limit, duration, async }) => limitOf(name, limit, duration, !async));
  limitsByText.set(text, limits);
  return limits;
}

/** A limit that a request brings. It is part of its pool's name: others of the same name are none of it. */
export const ownLimit = (name: string, limit: number, durationMs: number): Limit =>
  limitOf(name, limit, durationMs, false, true);
