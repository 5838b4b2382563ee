import { DEFAULT_LIMIT, type RateLimit } from '#shared/credits.ts';
import type { KeyState } from '#shared/key-record.ts';
import type { Window } from './pool.ts';

/** A rate limit of a key. Keys with the same limits share one list of them. */
export interface Limit extends Window {
  readonly name: string;
  /** Behind the key's id and a point: the name of its pool. */
  readonly suffix: string;
}

/** A rate limit that a request names. */
export interface AskedLimit {
  readonly name: string;
  readonly cost: number;
  /** The limit itself, where the request brings it. */
  readonly own?: Limit;
}

/** Lists by the text that they were read from. */
const known = new Map<string, readonly Limit[]>();
const KNOWN_MAX = 1000;

/** Limits of a key, the default one first; undefined = it has none. */
export function limitsOf({ ratelimit, ratelimits }: KeyState): readonly Limit[] | undefined {
  const text = `${ratelimit} ${ratelimits}`;
  if (text === ' ') return undefined;
  const present = known.get(text);
  if (present) return present;
  const given = [
    ...(ratelimit ? [{ ...(JSON.parse(ratelimit) as Omit<RateLimit, 'name'>), name: DEFAULT_LIMIT }] : []),
    ...(ratelimits ? (JSON.parse(ratelimits) as RateLimit[]) : []),
  ];
  const limits = given.map(({ name, limit, duration, async }) => ({
    ...{ name, limit, durationMs: duration, isExact: !async },
    suffix: `${duration}.${name}`,
  }));
  if (known.size >= KNOWN_MAX) known.clear();
  known.set(text, limits);
  return limits;
}

/** A limit that a request brings. It is part of its pool's name: others of the same name are none of it. */
export const ownLimit = (name: string, limit: number, durationMs: number): Limit => ({
  ...{ name, limit, durationMs, isExact: false },
  suffix: `${durationMs}.${name}.${limit}`,
});
