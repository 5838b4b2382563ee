/** A date and a time with its offset, as in RFC 3339. */
const FORM = /^(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))$/;

/** The rule for such a time, for errors. */
export const EXACT_TIME_RULE = 'must be a date and a time that exist, such as 2030-12-31T23:59:59Z';

/**
 * Parses a time as people write it into files and objects (RFC 3339). Returns Unix milliseconds; undefined = there is no such
 * time: what the calendar or the clock does not have, such as month 13, 31 June, 24:60 or +25:00, never becomes another time.
 */
export function exactTime(text: string): number | undefined {
  const [, ...parts] = FORM.exec(text) ?? [];
  if (parts.length === 0) return undefined;
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = parts.slice(0, 6).map(Number);
  const [fraction = '', sign = '+', offHours = '0', offMinutes = '0'] = parts.slice(6);
  const at = new Date(Date.UTC(year, month - 1, day, hour, minute, second));
  if (year < 100) at.setUTCFullYear(year);
  const isReal = at.getUTCMonth() === month - 1 && at.getUTCDate() === day && at.getUTCHours() === hour;
  if (!isReal || minute > 59 || second > 59 || Number(offHours) > 23 || Number(offMinutes) > 59)
    return undefined;
  const offMs = (Number(offHours) * 60 + Number(offMinutes)) * 60_000;
  return at.getTime() + Number(fraction.padEnd(3, '0').slice(0, 3)) - (sign === '-' ? -offMs : offMs);
}
