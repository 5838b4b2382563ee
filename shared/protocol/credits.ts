/**
 * The time at which credits come back by themselves: every UTC day, or every month at 00:00 UTC of a day (or
 * of the month's last day, if the month is shorter).
 */
export interface Refill {
  readonly interval: 'daily' | 'monthly';
  /** Credits after the refill. If more are left, they stay. */
  readonly amount: number;
  readonly refillDay?: number;
}

/** Maximum number of credits. Redis stores credits as doubles, and adds them up. */
export const CREDITS_MAX = 1_000_000_000_000;

/** Returns a refill in its form in Redis. */
export const refillText = ({ interval, amount, refillDay = 1 }: Refill): string =>
  interval === 'daily' ? `d ${amount}` : `m ${amount} ${refillDay}`;

/** Parses the result of `refillText`; undefined = no refill. */
export function refillOf(text: string): Refill | undefined {
  const [kind, amount, day] = text.split(' ');
  if (!kind) return undefined;
  return kind === 'd'
    ? { interval: 'daily', amount: Number(amount) }
    : { interval: 'monthly', amount: Number(amount), refillDay: Number(day) };
}

/** The maximum number of calls with one limit of a key, per window. */
export interface RateLimit {
  readonly name: string;
  /** Number of calls in a window, or the sum of their costs. */
  readonly limit: number;
  /** Length of the windows, in milliseconds. They are aligned to the clock of Redis. */
  readonly duration: number;
  /** True = verifiers may answer from slices of the limit, without asking Redis at each call. */
  readonly async: boolean;
  /** True = the limit applies to each verification; absent = only to those that name it. */
  readonly autoApply?: boolean;
  /** Only of a role's limit: all keys of an identity share it; absent = each key with the role has its own. */
  readonly per?: 'identity';
}

/** A limit in the form in which users set it. */
export type LimitInput = Pick<RateLimit, 'limit' | 'duration'> & { readonly async?: boolean };

/** A limit with a name, in the form in which users set it. */
export type NamedLimit = LimitInput &
  Pick<RateLimit, 'name' | 'autoApply'> & { readonly per?: 'key' | 'identity' };

/** Returns a limit with the defaults of its optional fields. */
export const wholeLimit = <L extends LimitInput>(limit: L): L & { readonly async: boolean } => ({
  ...limit,
  async: limit.async ?? true,
});

/** Returns a named limit with the defaults of its optional fields. Leaves out `autoApply` and `per` where they are the defaults. */
export const wholeNamedLimit = ({ autoApply, per, ...limit }: NamedLimit): RateLimit => ({
  ...wholeLimit(limit),
  ...(autoApply ? { autoApply } : {}),
  ...(per === 'identity' ? { per } : {}),
});

/** The limit that applies to each verification. Other limits apply if the question names them, or if they have `autoApply`. */
export const DEFAULT_LIMIT = 'default';
/** Matches a limit's name, which appears unescaped in names in Redis and in header fields. */
export const LIMIT_NAME = /^[A-Za-z0-9_-]{1,64}$/;
export const LIMIT_MAX = 1_000_000_000;
export const DURATION_MIN_MS = 1000;
export const DURATION_MAX_MS = 31 * 86_400_000;
/** Maximum number of limits of a key besides the default limit, and of limits in one question. */
export const LIMITS_MAX = 8;
