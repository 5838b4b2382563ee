/**
 * The smallest time that calls take, Unix milliseconds: in March 1973. Smaller numbers are Unix seconds, at least until the
 * year 5138, which nobody meant as a date near 1970.
 */
export const UNIX_MS_MIN = 100_000_000_000;

/** The rule for times in calls, for error messages. */
export const UNIX_MS_RULE =
  'must be Unix milliseconds, not seconds; send 1893456000000 instead of 1893456000';

/** Such a time as a string in a query; `0` stands for the beginning. */
export const MOMENT_PATTERN = '^(?:0|[1-9][0-9]{11,14})$';
