import type { Entry } from './cache.ts';

/** What a decided verification says of the key. An outage is not one of these: it is an error. */
export type VerdictCode = 'VALID' | 'DISABLED' | 'EXPIRED' | 'FORBIDDEN' | 'NOT_FOUND';

/** How often each was given. */
export type VerdictCounts = Record<VerdictCode, number>;

/** `entry` is there for VALID, DISABLED and EXPIRED only: the others tell nothing of the key. */
export interface Verdict {
  readonly code: VerdictCode;
  readonly entry?: Entry;
}

export const NOT_FOUND: Verdict = Object.freeze({ code: 'NOT_FOUND' });
export const FORBIDDEN: Verdict = Object.freeze({ code: 'FORBIDDEN' });

/**
 * Judges a known key of an API that this verifier serves: disabled, then other API than asked for, then expired.
 * @param askedApi the API that the caller wants the key to be of; undefined = any
 * @param nowMs Unix time that never goes back
 */
export function judge(entry: Entry, askedApi: string | undefined, nowMs: number): Verdict {
  if (!entry.enabled) return { code: 'DISABLED', entry };
  if (askedApi !== undefined && askedApi !== entry.epoch.apiId) return FORBIDDEN;
  if (entry.expires !== 0 && entry.expires <= nowMs) return { code: 'EXPIRED', entry };
  return { code: 'VALID', entry };
}

/** The body of a verifyKey response. */
export function verdictBody({ code, entry }: Verdict, requestId: string): string {
  const head = `{"valid":${code === 'VALID'},"code":"${code}"`;
  if (entry === undefined) return `${head},"requestId":"${requestId}"}`;
  const key = `,"keyId":"${entry.keyId}","apiId":"${entry.epoch.apiId}","enabled":${entry.enabled}`;
  const expires = entry.expires === 0 ? '' : `,"expires":${entry.expires}`;
  const { details } = entry;
  if (details === undefined) return `${head}${key},"meta":{}${expires},"requestId":"${requestId}"}`;
  const name = details.name && `,"name":${JSON.stringify(details.name)}`;
  const owner = details.externalId && `,"externalId":${JSON.stringify(details.externalId)}`;
  return `${head}${key},"meta":${details.meta}${name}${owner}${expires},"requestId":"${requestId}"}`;
}
