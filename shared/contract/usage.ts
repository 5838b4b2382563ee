import { VERDICT_CODES, VERDICTS, type VerdictCode } from './verdict-codes.ts';

/** Usage of a key in Redis: a hash with counts of verdicts by the hour and by the day, UTC. */

/** Number of hours and days that are kept. Few enough that Redis keeps a key's usage in the compact form. */
export const RETENTION = { hour: 48, day: 31 } as const;
export const LENGTH_MS = { hour: 3_600_000, day: 86_400_000 } as const;

/** The length of the periods that usage is asked for. */
export type Granularity = keyof typeof RETENTION;

/** The counted kinds of verdict: the letter of their field in Redis, and their name in responses. */
type Columns = NonNullable<(typeof VERDICTS)[VerdictCode]['usage']>;
/** A name of a count in responses. */
export type UsageField = Columns['field'];

/** The kinds of verdict that are counted. */
export const USAGE_COLUMNS = VERDICT_CODES.flatMap((code) => {
  const { usage, sentence } = VERDICTS[code];
  return usage === undefined ? [] : [{ code, sentence, ...usage }];
});

/** A value for each count in a response. */
export function perUsageField<T>(make: (column: (typeof USAGE_COLUMNS)[number]) => T): Record<UsageField, T> {
  return Object.fromEntries(USAGE_COLUMNS.map((column) => [column.field, make(column)])) as Record<
    UsageField,
    T
  >;
}

/** Field: Unix milliseconds of the latest report of a VALID verdict. */
export const LAST_USED = 't';

/** Field: how many verdicts a key had in the hour or day of this number since 1970. */
export const usageField = (granularity: Granularity, number: number, letter: string): string =>
  `${granularity[0]}${number}${letter}`;
