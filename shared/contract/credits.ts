/** When credits come back by themselves: every UTC day, or every month at 00:00 UTC of a day, of the last where it is shorter. */
export interface Refill {
  readonly interval: 'daily' | 'monthly';
  /** Credits that there are after it; where more are left they stay. */
  readonly amount: number;
  readonly refillDay?: number;
}

/** The protocol that verifiers must speak to take credits into account. */
export const CREDITS_PROTOCOL = 2;

/** A pool's credits are kept as doubles in Redis, and summed. */
export const CREDITS_MAX = 1_000_000_000_000;

/** The form in Redis. */
export const refillText = ({ interval, amount, refillDay = 1 }: Refill): string =>
  interval === 'daily' ? `d ${amount}` : `m ${amount} ${refillDay}`;

/** Reads what `refillText` wrote; undefined = none. */
export function refillOf(text: string): Refill | undefined {
  const [kind, amount, day] = text.split(' ');
  if (!kind) return undefined;
  return kind === 'd'
    ? { interval: 'daily', amount: Number(amount) }
    : { interval: 'monthly', amount: Number(amount), refillDay: Number(day) };
}

/** The most calls of one name that a key may make in a window of some length. */
export interface RateLimit {
  readonly name: string;
  /** Calls in a window, or what they cost. */
  readonly limit: number;
  /** Length of the windows, milliseconds. They are aligned to the clock of Redis. */
  readonly duration: number;
  /** True if verifiers may answer from slices of it, without asking at each call. */
  readonly async: boolean;
}

/** A limit as people set it. */
export type LimitInput = Omit<RateLimit, 'name' | 'async'> & { readonly async?: boolean };

/** The same of several, which have names. */
export type NamedLimit = LimitInput & Pick<RateLimit, 'name'>;

/** A limit with all that people may leave out. */
export const wholeLimit = <L extends LimitInput>(limit: L): L & { readonly async: boolean } => ({
  ...limit,
  async: limit.async ?? true,
});

/** The limit that is obeyed at each verification; others only where it asks for them. */
export const DEFAULT_LIMIT = 'default';
/** Goes into names in Redis and into header fields as it is. */
export const LIMIT_NAME = /^[A-Za-z0-9_-]{1,64}$/;
export const LIMIT_MAX = 1_000_000_000;
export const DURATION_MIN_MS = 1000;
export const DURATION_MAX_MS = 31 * 86_400_000;
/** Most limits of a key besides the default one, and most that one verification asks for. */
export const LIMITS_MAX = 8;
