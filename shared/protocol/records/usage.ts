import { VERDICT_CODES, VERDICTS, type VerdictCode } from '../../rules/verdict-codes.ts';

/** Usage of a key in Redis: a hash with counts of verdicts per hour and per day, in UTC; of an API also per minute. */

/**
 * Numbers of minutes, hours and days that are kept, few enough that Redis stores a key's usage in its compact form.
 */
export const RETENTION = { minute: 60, hour: 48, day: 31 } as const;
export const LENGTH_MS = { minute: 60_000, hour: 3_600_000, day: 86_400_000 } as const;

/** The length of the periods in questions about usage. */
export type Granularity = keyof typeof RETENTION;

/** The counted kinds of verdict: the letter of their field in Redis, and their name in responses. */
type Columns = NonNullable<(typeof VERDICTS)[VerdictCode]['usage']>;
/** The name of a count in responses. */
export type UsageField = Columns['field'];

/** The kinds of verdict that are counted. */
export const USAGE_COLUMNS = VERDICT_CODES.flatMap((code) => {
  const { usage, sentence } = VERDICTS[code];
  return usage === undefined ? [] : [{ code, sentence, ...usage }];
});

/** Returns a value for each count in a response. */
export function perUsageField<T>(make: (column: (typeof USAGE_COLUMNS)[number]) => T): Record<UsageField, T> {
  return Object.fromEntries(USAGE_COLUMNS.map((column) => [column.field, make(column)])) as Record<
    UsageField,
    T
  >;
}

/** Fields: Unix milliseconds of the latest report of a VALID verdict, and of any other. */
export const LAST_USED = 't';
export const LAST_REFUSED = 'r';

/** Field: the number of a key's verdicts in the minute, hour or day with this number since 1970. */
export const usageField = (granularity: Granularity, number: number, letter: string): string =>
  `${granularity[0]}${number}${letter}`;
