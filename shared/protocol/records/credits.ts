/** A part of the calendar. */
export type Interval = 'hour' | 'day' | 'week' | 'month';

/** When a period of the calendar begins; absent = the first day, at 00:00 UTC. */
export interface Anchor {
  /** Day of the month, 1 to 31. A shorter month begins on its last day. */
  readonly day?: number;
  /** Day of the week, 1 to 7; 1 = Monday. */
  readonly weekday?: number;
  readonly hour?: number;
  /** Minutes by which the local time is ahead of UTC. */
  readonly offsetMinutes?: number;
}

/** The longest that a period can be, in milliseconds. */
export const LONGEST_MS: Readonly<Record<Interval, number>> = {
  hour: 3_600_000,
  day: 86_400_000,
  week: 7 * 86_400_000,
  month: 31 * 86_400_000,
};

/** Returns the periods of a calendar as `periodOf` in credits.lua reads them. */
export function calendarOf(interval: Interval, anchor: Anchor = {}): string {
  const { day, weekday, hour = 0, offsetMinutes = 0 } = anchor;
  const shift = 3600 * hour - 60 * offsetMinutes;
  return `${interval[0]}${day ?? weekday ?? ''}${shift === 0 ? '' : shift > 0 ? `+${shift}` : shift}`;
}

/** The time at which credits come back by themselves: at the beginning of each period. */
export interface Refill {
  readonly interval: 'daily' | 'weekly' | 'monthly';
  /** Credits after the refill. If more are left, they stay. */
  readonly amount: number;
  /** The `day` of the anchor, under the name in v2 of the interface. */
  readonly refillDay?: number;
  readonly anchor?: Anchor;
}

/** Per cents used of which webhooks tell: each from 1 to 99, in ascending order. */
export type Thresholds = readonly number[];
export const THRESHOLDS_MAX = 3;
export const THRESHOLD_MAX = 99;

/** Maximum number of credits. Redis stores credits as doubles, and adds them up. */
export const CREDITS_MAX = 1_000_000_000_000;

/** The interval of the calendar that each interval of refills stands for. */
export const REFILL_PERIODS = { daily: 'day', weekly: 'week', monthly: 'month' } as const;

/**
 * Returns a refill in its form in Redis: the first letter of its calendar, the amount, the rest of the calendar, and its anchor as
 * it was set, JSON.
 */
export function refillText({ interval, amount, refillDay, anchor }: Refill): string {
  const day = interval === 'monthly' && !anchor ? { day: refillDay ?? 1 } : {};
  const calendar = calendarOf(REFILL_PERIODS[interval], { ...day, ...anchor });
  const parts = [calendar[0], amount, calendar.slice(1), anchor ? JSON.stringify(anchor) : ''];
  return parts.join(' ').trimEnd();
}

/** Parses the result of `refillText`; undefined = no refill. */
export function refillOf(text: string): Refill | undefined {
  const [, kind, amount, day, anchor] = /^([dwm]) (\d+) ?(\d*)\S* ?(.*)$/.exec(text) ?? [];
  if (!kind) return undefined;
  const interval = kind === 'd' ? 'daily' : kind === 'w' ? 'weekly' : 'monthly';
  if (anchor) return { interval, amount: Number(amount), anchor: JSON.parse(anchor) as Anchor };
  return { interval, amount: Number(amount), ...(kind === 'm' ? { refillDay: Number(day) } : {}) };
}

/** The maximum number of calls with one limit of a key, per window. */
export interface RateLimit {
  readonly name: string;
  /** Number of calls in a window, or the sum of their costs. */
  readonly limit: number;
  /** Length of the windows, in milliseconds; of a period of the calendar the longest. They follow the clock of Redis. */
  readonly duration: number;
  /** Present = a quota: each window is a period of the calendar, and nothing of the period before counts in it. */
  readonly interval?: Interval;
  readonly anchor?: Anchor;
  /** Only of a quota. */
  readonly thresholds?: Thresholds;
  /** True = verifiers may answer from slices of the limit, without asking Redis at each call. */
  readonly async: boolean;
  /** True = the limit applies to each verification; absent = only to those that name it. */
  readonly autoApply?: boolean;
  /** Only of a role's limit: all keys of an identity share it; absent = each key with the role has its own. */
  readonly per?: 'identity';
}

const UNITS_MS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000 };

/** Formats the windows of a limit for people, as the command line takes them: `10s`, or `month` of a quota. */
export function windowText({ duration, interval }: Pick<LimitInput, 'duration' | 'interval'>): string {
  const [unit, ms] = Object.entries(UNITS_MS).find(([, each]) => Number(duration) % each === 0) ?? ['ms', 1];
  return interval ?? `${Number(duration) / ms}${unit}`;
}

/** A key's limit `default`. */
export type DefaultLimit = Omit<RateLimit, 'name' | 'autoApply' | 'per'>;

/** A limit in the form in which users set it: with either `duration` or `interval`. */
export type LimitInput = Omit<DefaultLimit, 'async' | 'duration'> & {
  readonly duration?: number;
  readonly async?: boolean;
};

/** A limit with a name, in the form in which users set it. */
export type NamedLimit = LimitInput &
  Pick<RateLimit, 'name' | 'autoApply'> & { readonly per?: 'key' | 'identity' };

/** Returns a limit with the defaults of its optional fields. */
export const wholeLimit = ({
  limit,
  duration,
  interval,
  anchor,
  thresholds,
  async = true,
}: LimitInput): DefaultLimit => ({
  limit,
  duration: interval ? LONGEST_MS[interval] : (duration ?? 0),
  ...(interval ? { interval } : {}),
  ...(interval && anchor ? { anchor } : {}),
  ...(interval && thresholds ? { thresholds } : {}),
  async,
});

/** Returns a named limit with the defaults of its optional fields. Leaves out `autoApply` and `per` where they are the defaults. */
export const wholeNamedLimit = ({ name, autoApply, per, ...limit }: NamedLimit): RateLimit => ({
  name,
  ...wholeLimit(limit),
  ...(autoApply ? { autoApply } : {}),
  ...(per === 'identity' ? { per } : {}),
});

/** The maximum number of holds of a key at the same time, by name. */
export interface ConcurrencyLimit extends Pick<RateLimit, 'name' | 'per'> {
  readonly limit: number;
}
/** The same in the form in which users set it. */
export type ConcurrencyInput = Omit<ConcurrencyLimit, 'per'> & Pick<NamedLimit, 'per'>;

/** Returns a concurrency limit without `per` where it is the default. */
export const wholeConcurrency = ({ name, limit, per }: ConcurrencyInput): ConcurrencyLimit => ({
  ...{ name, limit },
  ...(per === 'identity' ? { per } : {}),
});

/** The limit that applies to each verification. Other limits apply if the question names them, or if they have `autoApply`. */
export const DEFAULT_LIMIT = 'default';
/** Matches a limit's name, which appears unescaped in names in Redis and in header fields. */
export const LIMIT_NAME = /^[A-Za-z0-9_-]{1,64}$/;
export const LIMIT_MAX = 1_000_000_000;
export const CONCURRENCY_MAX = 1_000_000;
export const DURATION_MIN_MS = 1000;
export const DURATION_MAX_MS = 31 * 86_400_000;
/** Maximum number of rate limits of a key besides the default limit, of its concurrency limits, and of limits in one question. */
export const LIMITS_MAX = 8;
