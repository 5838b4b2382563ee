import { InvalidArgumentError, Option } from 'commander';
import { systemClock } from '#shared/process/clock.ts';
import { UNIX_MS_MIN } from '#shared/rules/unix-ms.ts';

const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 };
/** The last time that JavaScript knows. */
const TIME_MS_MAX = 8_640_000_000_000_000;

/** An option that is a time, and how it understands what is given. */
interface TimeRule {
  /** `+`: `+30d` is a time to come. `-`: only times that are over are taken, among them `30d` and `-30d`. */
  readonly sign: '+' | '-';
  /** The time that a date stands for: its first moment, its last, or the first one after it. */
  readonly date: 'first' | 'last' | 'after';
}

/** An option whose value is a time; all of them go by one rule, which their help tells. */
export class TimeOption extends Option {
  constructor(flags: string, description: string, rule: TimeRule) {
    const relative = rule.sign === '+' ? '+90m, +12h, +30d' : 'today, yesterday, 90m, 12h, 30d';
    super(
      flags,
      `${description}: 2030-12-31, 2030-12-31T10:00, ${relative} or Unix ms. A date includes its whole day; a time is that of your time zone, unless Z or an offset such as +02:00 follows`,
    );
    this.argParser((text) => timeIn(text, rule, systemClock.wallMs()));
  }
}

/** Parses a time. Returns Unix milliseconds. */
export function timeIn(text: string, { sign, date }: TimeRule, nowMs: number): number {
  const ms =
    relativeIn(text, sign, nowMs) ?? unixIn(text) ?? dateIn(text, sign, date, nowMs) ?? dateTimeIn(text);
  if (ms === undefined)
    throw new InvalidArgumentError(
      `Give a date, a date and a time, Unix milliseconds, ${sign}90m, ${sign}12h or ${sign}30d.`,
    );
  if (sign === '-' && date !== 'last' && ms > nowMs) throw inFuture();
  return ms;
}

const inFuture = () =>
  new InvalidArgumentError(
    'This time is in the future. Give a time in the past, such as -90m, -12h or -30d.',
  );

function relativeIn(text: string, sign: '+' | '-', nowMs: number): number | undefined {
  const [, direction = '-', amount, unit] = /^([+-])?(\d{1,6})([mhd])$/.exec(text) ?? [];
  if (!amount || !unit || direction !== sign || (sign === '+' && !text.startsWith('+'))) return undefined;
  const offMs = Number(amount) * UNIT_MS[unit as keyof typeof UNIT_MS];
  return sign === '+' ? nowMs + offMs : nowMs - offMs;
}

function unixIn(text: string): number | undefined {
  const ms = /^\d{12,16}$/.test(text) ? Number(text) : 0;
  return ms >= UNIX_MS_MIN && ms <= TIME_MS_MAX ? ms : undefined;
}

/** Reads a date, or `today` or `yesterday`, in the time zone of this machine. */
function dateIn(text: string, sign: '+' | '-', date: TimeRule['date'], nowMs: number): number | undefined {
  const [, year, month, day] = /^(\d{4})-(\d\d)-(\d\d)$/.exec(text) ?? [];
  const daysAgo = sign === '-' ? ['today', 'yesterday'].indexOf(text.toLowerCase()) : -1;
  if (year === undefined && daysAgo < 0) return undefined;
  const start = year === undefined ? new Date(nowMs) : new Date(Number(year), Number(month) - 1, Number(day));
  if (year === undefined) {
    start.setHours(0, 0, 0, 0);
    start.setDate(start.getDate() - daysAgo);
  } else if (!isDate(start, year, month, day)) throw impossible();
  if (sign === '-' && start.getTime() > nowMs) throw inFuture();
  if (date === 'first') return start.getTime();
  const after = new Date(start);
  after.setDate(start.getDate() + 1);
  return date === 'after' ? after.getTime() : after.getTime() - 1;
}

const isDate = (date: Date, ...[year, month, day]: readonly (string | undefined)[]): boolean =>
  date.getFullYear() === Number(year) &&
  date.getMonth() + 1 === Number(month) &&
  date.getDate() === Number(day);

const DATE_TIME = /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?(Z|[+-]\d\d:?\d\d)?$/i;

/** Reads a date with a time, in the time zone of this machine unless it gives an offset. */
function dateTimeIn(text: string): number | undefined {
  const [, ...parts] = DATE_TIME.exec(text) ?? [];
  if (parts.length === 0) return undefined;
  const zone = parts[7];
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = parts
    .slice(0, 6)
    .map((part) => Number(part ?? 0));
  const thousandths = Number((parts[6] ?? '').padEnd(3, '0'));
  const fields = [year, month - 1, day, hour, minute, second, thousandths] as const;
  // What does not exist, such as 30 February or a local time that the clocks leave out, would become another time.
  if (zone === undefined) {
    const at = new Date(...fields);
    const read = [at.getFullYear(), at.getMonth(), at.getDate(), at.getHours(), at.getMinutes()];
    if (read.some((value, i) => value !== fields[i]) || second > 59) throw impossible();
    return at.getTime();
  }
  const at = new Date(Date.UTC(...fields));
  const read = [at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate(), at.getUTCHours(), at.getUTCMinutes()];
  if (read.some((value, i) => value !== fields[i]) || second > 59) throw impossible();
  if (zone.toUpperCase() === 'Z') return at.getTime();
  const [, sign, hours = 0, minutes = 0] = /^([+-])(\d\d):?(\d\d)$/.exec(zone) ?? [];
  if (Number(hours) > 14 || Number(minutes) > 59) throw impossible();
  const offMs = Number(hours) * UNIT_MS.h + Number(minutes) * UNIT_MS.m;
  return at.getTime() - (sign === '-' ? -offMs : offMs);
}

const impossible = () =>
  new InvalidArgumentError('There is no such time. Give one that the calendar and the clock have.');

/** Formats Unix milliseconds in the time zone of this machine, with its offset and its name. */
export function zonedTime(ms: number): string {
  const at = new Date(ms);
  const offMin = -at.getTimezoneOffset();
  const local = new Date(ms + offMin * 60_000).toISOString().slice(0, -1);
  const two = (n: number) => String(n).padStart(2, '0');
  const off = `${offMin < 0 ? '-' : '+'}${two(Math.floor(Math.abs(offMin) / 60))}:${two(Math.abs(offMin) % 60)}`;
  return `${local.replace('.000', '')}${off} (${Intl.DateTimeFormat().resolvedOptions().timeZone})`;
}
