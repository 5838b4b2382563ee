/** What is kept of how often a key was verified: by the hour and by the day, UTC, in a hash with these fields. */

/** How long each is kept, in itself. Few enough that Redis keeps a key's usage in the compact form. */
export const KEPT = { hour: 48, day: 31 } as const;
export const LENGTH_MS = { hour: 3_600_000, day: 86_400_000 } as const;

/** How finely usage is asked for. */
export type Granularity = keyof typeof KEPT;

/** Verdicts that a key can have, as letters of the field names; NOT_FOUND is of no key. */
export const LETTERS = { VALID: 'V', DISABLED: 'D', EXPIRED: 'E', FORBIDDEN: 'F' } as const;

/** Field: Unix milliseconds of the latest report of a VALID verdict. */
export const LAST_USED = 't';

/** Field: how many verdicts a key had in the hour or day of this number since 1970. */
export const usageField = (granularity: Granularity, number: number, letter: string): string =>
  `${granularity[0]}${number}${letter}`;
