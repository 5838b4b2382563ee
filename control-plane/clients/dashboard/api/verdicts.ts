import type { VERDICTS, VerdictCode } from '#shared/rules/verdict-codes.ts';

/** A kind of verdict: its name, its colour (in style/), and the usage field that counts it on the server. */
type Kind<Code extends VerdictCode> = {
  readonly name: string;
  readonly tone: string;
  readonly field: (typeof VERDICTS)[Code]['usage'] extends { field: infer Name } ? Name : undefined;
};

/** The kinds of verdicts, in the order in which charts show them. */
export const KINDS = {
  VALID: { name: 'allowed', tone: 'good', field: 'success' },
  DISABLED: { name: 'disabled', tone: 'bad', field: 'disabled' },
  EXPIRED: { name: 'expired', tone: 'warn', field: 'expired' },
  INSUFFICIENT_PERMISSIONS: { name: 'lacks a permission', tone: 'other', field: 'insufficientPermissions' },
  RATE_LIMITED: { name: 'rate limited', tone: 'limited', field: 'rateLimited' },
  CONCURRENCY_EXCEEDED: { name: 'too many at once', tone: 'crowded', field: 'concurrencyExceeded' },
  USAGE_EXCEEDED: { name: 'credits spent', tone: 'spent', field: 'usageExceeded' },
  FORBIDDEN: { name: 'not allowed here', tone: 'foreign', field: 'forbidden' },
  NOT_FOUND: { name: 'unknown key', tone: 'quiet', field: undefined },
} as const satisfies { [Code in VerdictCode]: Kind<Code> };
/** Their codes, in the same order. */
export const CODES = Object.keys(KINDS) as VerdictCode[];
/** The kinds that usage counts: all verdicts about an existing key. */
export const COUNTERS = CODES.flatMap((code) => {
  const kind = KINDS[code];
  return kind.field === undefined ? [] : [{ ...kind, code }];
});
