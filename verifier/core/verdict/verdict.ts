import type { VerdictCode } from '#shared/contract/verdict-codes.ts';
import { allows, type Query } from '#shared/permissions/permission-query.ts';
import type { Spending } from '../allowances/allowance.ts';
import type { EffectivePermissions } from '../effective-permissions.ts';
import type { Entry } from '../key-cache.ts';
import type { Question } from '../question/question.ts';

/** A decision on a key. `entry` is present if the table of verdicts says that the response shows the key. */
export interface Verdict {
  readonly code: VerdictCode;
  readonly entry?: Entry;
  /** The key of a verdict that does not show it; undefined = `entry`, or none. Never part of an answer. */
  readonly about?: Entry;
  /** True = the key may not be used from the client's address. */
  readonly isByAddress?: true;
  /** The outcome for credits and rate limits; undefined = the key has none, or was refused anyway. */
  readonly spending?: Spending;
  /**
   * The key's effective permissions; undefined = it has neither roles nor an identity, and `entry` is enough.
   */
  readonly effectivePermissions?: EffectivePermissions | undefined;
}

/** A source of verdicts: `Verifier`, or an object with the same methods. */
export interface VerdictSource {
  /** Returns the verdict from memory, without waiting; undefined = the caller must call `lookUp`. */
  decide(question: Question): Verdict | undefined;
  /** Resolves with the verdict through Redis. Rejects with ApiError SERVICE_UNAVAILABLE if there is none. */
  lookUp(question: Question): Promise<Verdict>;
}

export const NOT_FOUND: Verdict = Object.freeze({ code: 'NOT_FOUND' });
export const FORBIDDEN: Verdict = Object.freeze({ code: 'FORBIDDEN' });

/**
 * Decides on a known key of an API that this verifier answers for. Checks first the API, then whether the key
 * is disabled, then its expiry, then the client's address, then its permissions. The API comes first so that a question about a key of
 * another API reveals nothing about that key, not even that it is disabled.
 * @param nowMs Unix time that never goes back
 * @param effectivePermissions the effective permissions of a key with roles or an identity
 */
export function judge(
  entry: Entry,
  { apiId, clientIp, requirements }: Pick<Question, 'apiId' | 'clientIp' | 'requirements'>,
  nowMs: number,
  effectivePermissions?: EffectivePermissions,
): Verdict {
  if (apiId !== undefined && apiId !== entry.epoch.apiId) return { code: 'FORBIDDEN', about: entry };
  const code = codeOf(entry, nowMs, requirements.permissions, effectivePermissions);
  if (entry.ranges !== undefined && isAboutUse(code) && !(clientIp && entry.ranges.has(clientIp)))
    return { code: 'FORBIDDEN', about: entry, isByAddress: true };
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

/** Returns true for a verdict on what a key may do, after those on whether it is good at all. */
const isAboutUse = (code: VerdictCode): boolean => code === 'VALID' || code === 'INSUFFICIENT_PERMISSIONS';

/** Returns true if a key is enabled, and its identity too. */
export const isEnabled = (
  { enabled }: Entry,
  effectivePermissions: EffectivePermissions | undefined,
): boolean => enabled && effectivePermissions?.identity?.enabled !== false;

const NO_PERMISSIONS: ReadonlySet<string> = new Set();
