import { type Anchor, calendarOf } from './calendar.ts';

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

/** Returns the JSON Schema of thresholds. */
export const thresholdsSchema = (of: string, event: string) => ({
  type: 'array',
  items: { type: 'integer', minimum: 1, maximum: 99 },
  minItems: 1,
  maxItems: 3,
  description: `${of}: per cent in ascending order, such as [80, 95]. Each time when so much is used, webhooks send \`${event}\`.`,
});

/** Returns the field and the rule if thresholds are not in order; undefined = they are. */
export const thresholdsFault = (thresholds: Thresholds = []): string | undefined =>
  thresholds.some((percent, i) => i > 0 && percent <= (thresholds[i - 1] ?? 0))
    ? 'thresholds: must be in ascending order, each once'
    : undefined;

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
