import { inOne } from '#shared/in-one.ts';
import { ALIASES, KEY_FIELDS } from '#shared/key-record.ts';
import { perVerdict, type VerdictCode } from '#shared/verdict-codes.ts';
import type { Entry } from './key-cache.ts';

/** A decision on a key. `entry` is there where the table of verdicts says that the response shows the key. */
export interface Verdict {
  readonly code: VerdictCode;
  readonly entry?: Entry;
  /** Credits left after this, as far as is known; undefined = the key has none, or nobody asked. */
  readonly remaining?: number;
  /** Of USAGE_EXCEEDED: time until credits come back by themselves, milliseconds; undefined = they do not. */
  readonly refillMs?: number | undefined;
}

export const NOT_FOUND: Verdict = Object.freeze({ code: 'NOT_FOUND' });
export const FORBIDDEN: Verdict = Object.freeze({ code: 'FORBIDDEN' });

/**
 * Judges a known key of an API that this verifier serves: other API than asked for, then disabled, then expired. In
 * this order, so that who asks about a key of somebody else's API learns nothing of it, not even that it is disabled.
 * @param askedApi the API that the caller wants the key to be of; undefined = any
 * @param nowMs Unix time that never goes back
 */
export function judge(entry: Entry, askedApi: string | undefined, nowMs: number): Verdict {
  if (askedApi !== undefined && askedApi !== entry.epoch.apiId) return FORBIDDEN;
  if (!entry.enabled) return { code: 'DISABLED', entry };
  if (entry.expires !== 0 && entry.expires <= nowMs) return { code: 'EXPIRED', entry };
  return { code: 'VALID', entry };
}

/** The body of a verifyKey response. */
export function verdictBody({ code, entry, remaining }: Verdict, requestId: string): string {
  const start = STARTS[code];
  if (entry === undefined) return `${start},"requestId":"${requestId}"}`;
  const { keyId, enabled, details } = entry;
  const key = `${start},"keyId":"${keyId}","apiId":"${entry.epoch.apiId}"`;
  const expires = entry.expires === 0 ? '' : `,"expires":${entry.expires}`;
  if (details === undefined) {
    return enabled
      ? `${key},"enabled":true,"meta":{}${expires},"requestId":"${requestId}"}`
      : `${key},"enabled":false,"meta":{}${expires},"requestId":"${requestId}"}`;
  }
  let texts = '';
  for (const { name, label } of TEXTS) {
    const value = details[name];
    if (value) texts += label + JSON.stringify(value);
  }
  const credits = remaining === undefined ? '' : `,"remaining":${remaining}`;
  return `${key},"enabled":${enabled},"meta":${details.meta}${texts}${expires}${credits},"requestId":"${requestId}"}`;
}

/** The fields of a key that follow its meta, and how each begins in a body, under each of its names. */
const { enabled: _enabled, expires: _expires, meta: _meta, ...others } = KEY_FIELDS;
const TEXTS = [
  ...(Object.keys(others) as (keyof typeof others)[]).map((name) => ({ name, label: name })),
  ...Object.entries(ALIASES).map(([label, name]) => ({ name, label })),
].map(({ name, label }) => ({ name, label: inOne(`,"${label}":`) }));

/** Beginnings of a body. */
const STARTS = perVerdict(({ status }, code) => inOne(`{"valid":${status === 200},"code":"${code}"`));
