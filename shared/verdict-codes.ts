/** What a decided verification says of the key. An outage is not one of these: it is an error. */
export type VerdictCode = 'VALID' | 'DISABLED' | 'EXPIRED' | 'FORBIDDEN' | 'NOT_FOUND';

/** How often each was given. */
export type VerdictCounts = Record<VerdictCode, number>;
