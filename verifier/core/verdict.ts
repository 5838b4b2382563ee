import { DEFAULT_LIMIT } from '#shared/credits.ts';
import { inOne } from '#shared/in-one.ts';
import { TEXT_FIELDS } from '#shared/key-record.ts';
import { perVerdict, type VerdictCode } from '#shared/verdict-codes.ts';
import type { LimitOutcome, Spending } from './allowances/allowance.ts';
import type { Grants } from './grants.ts';
import type { Entry } from './key-cache.ts';
import { allows, type Query } from './permissions.ts';
import type { Question } from './question.ts';

/** A decision on a key. `entry` is there where the table of verdicts says that the response shows the key. */
export interface Verdict {
  readonly code: VerdictCode;
  readonly entry?: Entry;
  /** Outcome for credits and rate limits; undefined = the key has none, or it was not good anyway. */
  readonly spending?: Spending;
  /** All that the key may do; undefined = it has no roles and no identity, and `entry` says it. */
  readonly grants?: Grants | undefined;
}

/** Decides on keys: `Verifier`, or anything like it. */
export interface Decider {
  /** Returns the verdict from memory; undefined = `lookUp` must be asked. Never waits. */
  decide(question: Question): Verdict | undefined;
  /** Resolves with the verdict by way of Redis. Rejects with ApiError SERVICE_UNAVAILABLE when none can be had. */
  lookUp(question: Question): Promise<Verdict>;
}

export const NOT_FOUND: Verdict = Object.freeze({ code: 'NOT_FOUND' });
export const FORBIDDEN: Verdict = Object.freeze({ code: 'FORBIDDEN' });

/**
 * Judges a known key of an API that this verifier serves: other API than asked for, then disabled, then expired, then
 * without a permission that is needed. In this order, so that who asks about a key of somebody else's API learns nothing of it, not even that it is disabled.
 * @param nowMs Unix time that never goes back
 * @param grants all that a key with roles may do
 */
export function judge(
  entry: Entry,
  { apiId, requirements }: Pick<Question, 'apiId' | 'requirements'>,
  nowMs: number,
  grants?: Grants,
): Verdict {
  if (apiId !== undefined && apiId !== entry.epoch.apiId) return FORBIDDEN;
  const code = codeOf(entry, nowMs, requirements.permissions, grants);
  return grants === undefined ? { code, entry } : { code, entry, grants };
}

function codeOf(entry: Entry, nowMs: number, query?: Query, grants?: Grants): VerdictCode {
  if (!isEnabled(entry, grants)) return 'DISABLED';
  if (entry.expires !== 0 && entry.expires <= nowMs) return 'EXPIRED';
  if (query === undefined || allows((grants ?? entry.rights)?.granted ?? NOTHING, query)) return 'VALID';
  return 'INSUFFICIENT_PERMISSIONS';
}

/** Tells whether a key is enabled, and its owner too. */
export const isEnabled = ({ enabled }: Entry, grants: Grants | undefined): boolean =>
  enabled && grants?.identity?.enabled !== false;

const NOTHING: ReadonlySet<string> = new Set();

/** The body of a verifyKey response. */
export function verdictBody({ code, entry, spending, grants }: Verdict, requestId: string): string {
  const start = STARTS[code];
  if (entry === undefined) return `${start},"requestId":"${requestId}"}`;
  const { keyId, details } = entry;
  const enabled = isEnabled(entry, grants);
  const key = `${start},"keyId":"${keyId}","apiId":"${entry.epoch.apiId}"`;
  const expires = entry.expires === 0 ? '' : `,"expires":${entry.expires}`;
  const used = spending === undefined ? '' : spendingText(spending);
  if (details === undefined) {
    return enabled
      ? `${key},"enabled":true,"meta":{}${expires}${used},"requestId":"${requestId}"}`
      : `${key},"enabled":false,"meta":{}${expires}${used},"requestId":"${requestId}"}`;
  }
  let texts = '';
  for (const { name, label } of TEXTS) {
    const value = details[name];
    if (value) texts += label + JSON.stringify(value);
  }
  if (grants) texts += grants.json;
  else if (entry.rights) texts += `,"permissions":${entry.rights.json}`;
  return `${key},"enabled":${enabled},"meta":${details.meta}${texts}${expires}${used},"requestId":"${requestId}"}`;
}

/** Fields of a body about credits and rate limits. */
export function spendingFields({ remaining, limits }: Spending): object {
  return {
    ...(remaining === undefined ? {} : { remaining }),
    ...(limits === undefined ? {} : limitFields(limits)),
  };
}

function limitFields(limits: readonly LimitOutcome[]): object {
  const { of, remaining, reset } = nearest(limits);
  return {
    ratelimit: { limit: of.limit, remaining, reset },
    ratelimits: limits.map(({ of: { name, limit, durationMs: duration }, ...state }) => ({
      ...{ name, limit, duration },
      ...state,
    })),
  };
}

/** Written out, since this is in each answer. */
function spendingText({ remaining, limits }: Spending): string {
  const credits = remaining === undefined ? '' : `,"remaining":${remaining}`;
  if (limits === undefined) return credits;
  let all = '';
  for (const { of, remaining: left, reset, exceeded } of limits) {
    const end = exceeded ? ',"exceeded":true}' : ',"exceeded":false}';
    all += `${all === '' ? '' : ','}${of.label}${left},"reset":${reset}${end}`;
  }
  const { of, remaining: left, reset } = nearest(limits);
  return `${credits},"ratelimit":{"limit":${of.limit},"remaining":${left},"reset":${reset}},"ratelimits":[${all}]`;
}

/** The one limit that clients of the v1 SDK see: the one that refuses, else the default, else the one with the least left. */
function nearest(limits: readonly LimitOutcome[]): LimitOutcome {
  const [only] = limits;
  if (only !== undefined && limits.length === 1) return only;
  return (
    limits.find(({ exceeded }) => exceeded) ??
    limits.find(({ of }) => of.name === DEFAULT_LIMIT) ??
    limits.reduce((least, each) => (each.remaining < least.remaining ? each : least))
  );
}

/** Beginning of each text in a body, under each of its names. */
const TEXTS = TEXT_FIELDS.map(({ name, label }) => ({ name, label: inOne(`,"${label}":`) }));

/** Beginnings of a body. */
const STARTS = perVerdict(({ status }, code) => inOne(`{"valid":${status === 200},"code":"${code}"`));
