import type { VerdictCode } from '#shared/contract/verdict-codes.ts';
import type { Spending } from '../allowances/allowance.ts';
import type { EffectivePermissions } from '../effective-permissions.ts';
import type { Entry } from '../key-cache.ts';
import { allows, type Query } from '../permissions.ts';
import type { Question } from '../question/question.ts';

/** A decision on a key. `entry` is there where the table of verdicts says that the response shows the key. */
export interface Verdict {
  readonly code: VerdictCode;
  readonly entry?: Entry;
  /** Outcome for credits and rate limits; undefined = the key has none, or it was not good anyway. */
  readonly spending?: Spending;
  /** All that the key may do; undefined = it has no roles and no identity, and `entry` says it. */
  readonly effectivePermissions?: EffectivePermissions | undefined;
}

/** Decides on keys: `Verifier`, or anything like it. */
export interface VerdictSource {
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
 * @param effectivePermissions all that a key with roles may do
 */
export function judge(
  entry: Entry,
  { apiId, requirements }: Pick<Question, 'apiId' | 'requirements'>,
  nowMs: number,
  effectivePermissions?: EffectivePermissions,
): Verdict {
  if (apiId !== undefined && apiId !== entry.epoch.apiId) return FORBIDDEN;
  const code = codeOf(entry, nowMs, requirements.permissions, effectivePermissions);
  return effectivePermissions === undefined ? { code, entry } : { code, entry, effectivePermissions };
}

function codeOf(
  entry: Entry,
  nowMs: number,
  query?: Query,
  effectivePermissions?: EffectivePermissions,
): VerdictCode {
  if (!isEnabled(entry, effectivePermissions)) return 'DISABLED';
  if (entry.expires !== 0 && entry.expires <= nowMs) return 'EXPIRED';
  if (
    query === undefined ||
    allows((effectivePermissions ?? entry.ownPermissions)?.slugSet ?? NO_PERMISSIONS, query)
  )
    return 'VALID';
  return 'INSUFFICIENT_PERMISSIONS';
}

/** Tells whether a key is enabled, and its owner too. */
export const isEnabled = (
  { enabled }: Entry,
  effectivePermissions: EffectivePermissions | undefined,
): boolean => enabled && effectivePermissions?.identity?.enabled !== false;

const NO_PERMISSIONS: ReadonlySet<string> = new Set();
