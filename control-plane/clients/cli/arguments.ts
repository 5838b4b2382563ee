import { InvalidArgumentError } from 'commander';
import { CREDITS_MAX, type Refill } from '#shared/protocol/records/credits.ts';
import { type LimitInput, limitOfText } from '#shared/protocol/records/limit.ts';
import { parseExactly } from '#shared/rules/json.ts';

const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Parses a duration: `0`, `90m`, `12h`, `30d`. Returns milliseconds. */
export function span(text: string): number {
  const [, amount, unit] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  if (text === '0') return 0;
  if (!amount || !unit) throw new InvalidArgumentError('Give 0, 90m, 12h or 30d.');
  return Number(amount) * UNIT_MS[unit as keyof typeof UNIT_MS];
}

/** Parses a JSON object. */
export function jsonObject(text: string): object {
  const value = jsonIn(text);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new InvalidArgumentError('Give a JSON object.');
}

/** Parses JSON; undefined = it is none. */
function jsonIn(text: string): unknown {
  try {
    return parseExactly(text, () => {
      throw new InvalidArgumentError('Give whole numbers of at most 53 bits, or as strings.');
    });
  } catch (error) {
    if (error instanceof InvalidArgumentError) throw error;
    return undefined;
  }
}

/** Parses a rate limit, such as `100/10s`, or a quota, such as `1000/month`; null = none. */
export function rateLimit(text: string): LimitInput | null {
  if (text === 'none') return null;
  const limit = limitOfText(text, jsonObject);
  if (limit !== undefined) return limit;
  throw new InvalidArgumentError(
    'Give a number of calls and a time, such as 100/10s or 5000/1h, or hour, day, week or month of the calendar, such as 1000/month, or the word none.',
  );
}

/** Parses names separated by commas; an empty text has no names. */
export const names = (text: string): string[] => text.split(',').filter((name) => name !== '');

/** Parses a JSON array. */
export function jsonList(text: string): unknown[] {
  const value = jsonIn(text);
  if (Array.isArray(value)) return value;
  throw new InvalidArgumentError('Give a JSON array.');
}

/** Returns a parser for whole numbers from `min` to `max`. */
export const whole = (min: number, max: number) => (text: string) => {
  const value = Number(text);
  if (!/^\d{1,15}$/.test(text) || value < min || value > max) {
    throw new InvalidArgumentError(`Give a whole number from ${min} to ${max}.`);
  }
  return value;
};

/** Parses a refill: `daily:<credits>`, `weekly:<credits>`, `monthly:<credits>` or `monthly:<credits>:<day>`. */
export function refillPlan(text: string): Refill {
  const [, interval, amount, day] = /^(daily|weekly|monthly):(\d{1,15})(?::(\d{1,2}))?$/.exec(text) ?? [];
  const refillDay = day === undefined ? undefined : Number(day);
  const isDay = refillDay === undefined || (interval === 'monthly' && refillDay >= 1 && refillDay <= 31);
  if (interval === undefined || Number(amount) < 1 || Number(amount) > CREDITS_MAX || !isDay)
    throw new InvalidArgumentError(
      'Give daily:<credits>, weekly:<credits>, monthly:<credits> or monthly:<credits>:<day>.',
    );
  return {
    interval: interval as Refill['interval'],
    amount: Number(amount),
    ...(refillDay === undefined ? {} : { refillDay }),
  };
}
