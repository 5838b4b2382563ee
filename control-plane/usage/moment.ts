import { ApiError } from '#shared/contract/errors.ts';
import { UNIX_MS_MIN, UNIX_MS_RULE } from '#shared/contract/unix-ms.ts';
import { type Granularity, LENGTH_MS } from '#shared/contract/usage.ts';
import type { Reader } from './reader.ts';

const TEXT = /^(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,3}))?Z?)?$/;
const UNITS = { minute: 60_000, hour: LENGTH_MS.hour, day: LENGTH_MS.day, week: 7 * LENGTH_MS.day } as const;
const UNIT_NAMES = ['minute', 'minutes', 'hour', 'hours', 'day', 'days', 'week', 'weeks'] as const;
const EXPECTED = "a time, such as now() - INTERVAL 7 DAY or '2026-11-25 10:00:00' (in UTC),";

/** The functions that return the beginning of an hour or a day. */
export const STARTS = { tostartofhour: 'hour', tostartofday: 'day', todate: 'day' } as const;
export const START_NAMES = ['tostartofhour', 'tostartofday', 'todate'] as const;

/** Returns the start of the hour or day of a time. */
export const startOf = (timeMs: number, unit: Granularity): number =>
  Math.floor(timeMs / LENGTH_MS[unit]) * LENGTH_MS[unit];

/**
 * Reads a time, Unix milliseconds.
 * @param canBeNumber true if the query's table has its times as numbers
 */
export function momentIn(reader: Reader, nowMs: number, canBeNumber: boolean): number {
  const start = reader.takeWord(...START_NAMES);
  if (start === undefined) return differenceIn(reader, nowMs, canBeNumber);
  reader.symbol('(');
  const timeMs = differenceIn(reader, nowMs, canBeNumber);
  reader.symbol(')');
  return startOf(timeMs, STARTS[start]);
}

/** Reads a time, perhaps less an interval. */
function differenceIn(reader: Reader, nowMs: number, canBeNumber: boolean): number {
  const timeMs = pointIn(reader, nowMs, canBeNumber);
  if (!reader.takeSymbol('-')) return timeMs;
  reader.words('interval');
  const number = reader.takeNumber() ?? reader.fail('a number');
  const unit = reader.takeWord(...UNIT_NAMES) ?? reader.fail('MINUTE, HOUR, DAY or WEEK');
  return timeMs - number * UNITS[unit.replace(/s$/, '') as keyof typeof UNITS];
}

function pointIn(reader: Reader, nowMs: number, canBeNumber: boolean): number {
  const word = reader.takeWord('now', 'today', 'yesterday', 'todatetime');
  if (word === 'todatetime') {
    reader.symbol('(');
    const timeMs = textTimeIn(reader);
    reader.symbol(')');
    return timeMs;
  }
  if (word !== undefined) {
    reader.symbol('(');
    reader.symbol(')');
    if (word === 'now') return nowMs;
    return startOf(nowMs, 'day') - (word === 'today' ? 0 : LENGTH_MS.day);
  }
  const number = canBeNumber ? reader.takeNumber() : undefined;
  if (number === undefined) return textTimeIn(reader);
  if (number > 0 && number < UNIX_MS_MIN) throw new ApiError('BAD_REQUEST', `query: time: ${UNIX_MS_RULE}`);
  return number;
}

function textTimeIn(reader: Reader): number {
  const text = reader.takeText() ?? reader.fail(EXPECTED);
  const [, year, month, day, hour = 0, minute = 0, second = 0, fraction = ''] = TEXT.exec(text) ?? [];
  const parts = [year, Number(month) - 1, day, hour, minute, second, fraction.padEnd(3, '0')].map(Number);
  const [y = Number.NaN, ...rest] = parts;
  const timeMs = Date.UTC(y, ...(rest as [number, number, number, number, number, number]));
  return Number.isNaN(timeMs) ? reader.fail(EXPECTED) : timeMs;
}
