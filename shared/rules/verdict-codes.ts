/** The properties in which verdicts differ. */
interface VerdictRow {
  /** HTTP status of the answer to a gateway; 200 lets the caller pass. */
  readonly status: 200 | 401 | 403 | 429;
  /** The meaning of the verdict, for humans. A gateway may pass it on to its client. */
  readonly sentence: string;
  /** True = the response shows the key; false = it reveals nothing about the key. */
  readonly showsKey: boolean;
  /**
   * The counter in usage: a letter in Redis, a field in responses. undefined = there is no key to count for.
   */
  readonly usage: { readonly letter: string; readonly field: string } | undefined;
}

/**
 * The only table of verdicts, the possible results of a decided verification. An outage is not among them,
 * because it is an error. VALID comes first, because usage reads the time of a key's last use from the first
 * column.
 */
export const VERDICTS = {
  VALID: {
    status: 200,
    sentence: 'The API key is valid.',
    showsKey: true,
    usage: { letter: 'V', field: 'success' },
  },
  DISABLED: {
    status: 401,
    sentence: 'The API key is disabled.',
    showsKey: true,
    usage: { letter: 'D', field: 'disabled' },
  },
  EXPIRED: {
    status: 401,
    sentence: 'The API key has expired.',
    showsKey: true,
    usage: { letter: 'E', field: 'expired' },
  },
  INSUFFICIENT_PERMISSIONS: {
    status: 403,
    sentence: 'The API key lacks a required permission.',
    showsKey: true,
    usage: { letter: 'P', field: 'insufficientPermissions' },
  },
  RATE_LIMITED: {
    status: 429,
    sentence: 'The API key was used too often; try again later.',
    showsKey: true,
    usage: { letter: 'R', field: 'rateLimited' },
  },
  CONCURRENCY_EXCEEDED: {
    status: 429,
    sentence: 'The API key has too many requests running at once; try again when one has ended.',
    showsKey: true,
    usage: { letter: 'C', field: 'concurrencyExceeded' },
  },
  USAGE_EXCEEDED: {
    status: 429,
    sentence: 'The API key has too few credits left.',
    showsKey: true,
    usage: { letter: 'U', field: 'usageExceeded' },
  },
  FORBIDDEN: {
    status: 403,
    sentence:
      'The API key may not be used here: it belongs to another API, or not from this address or web page.',
    showsKey: false,
    usage: { letter: 'F', field: 'forbidden' },
  },
  NOT_FOUND: {
    status: 401,
    sentence: 'The API key is unknown.',
    showsKey: false,
    usage: undefined,
  },
} as const satisfies Record<string, VerdictRow>;

/** The name of a verdict. It is never renamed and never reused. */
export type VerdictCode = keyof typeof VERDICTS;

/** Codes of verdicts that refuse a key and show it. */
export type RefusalCode = {
  [Code in VerdictCode]: (typeof VERDICTS)[Code] extends { showsKey: true; status: 200 }
    ? never
    : (typeof VERDICTS)[Code] extends { showsKey: true }
      ? Code
      : never;
}[VerdictCode];
/** Codes of verdicts that reveal nothing about a key. */
export type SilentCode = {
  [Code in VerdictCode]: (typeof VERDICTS)[Code] extends { showsKey: false } ? Code : never;
}[VerdictCode];

/** All codes, in the table's order. */
export const VERDICT_CODES = Object.keys(VERDICTS) as readonly VerdictCode[];

/** Returns the codes of the rows that `accepts` accepts. */
export const codesWhere = (accepts: (row: VerdictRow) => boolean): VerdictCode[] =>
  VERDICT_CODES.filter((code) => accepts(VERDICTS[code]));

/** Returns a value for each code, created from its row. */
export function perVerdict<T>(make: (row: VerdictRow, code: VerdictCode) => T): Record<VerdictCode, T> {
  return Object.fromEntries(VERDICT_CODES.map((code) => [code, make(VERDICTS[code], code)])) as Record<
    VerdictCode,
    T
  >;
}

/** A number of verdicts for each code. */
export type VerdictCounts = Record<VerdictCode, number>;
