import { brokenRule, type KeyFacts, RULES } from '#shared/contract/rules.ts';
import type { VerdictCode } from '#shared/contract/verdict-codes.ts';
import type { Spending } from './allowance.ts';
import type { EffectivePermissions } from './effective-permissions.ts';
import type { Entry } from './key-cache.ts';
import type { Question } from './question.ts';

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
 * Decides by the rules on a known key of an API that this verifier answers for.
 * @param nowMs Unix time that never goes back
 * @param effectivePermissions the effective permissions of a key with roles or an identity
 */
export function decide(
  entry: Entry,
  { apiId, clientIp, requirements: { permissions } }: Pick<Question, 'apiId' | 'clientIp' | 'requirements'>,
  nowMs: number,
  effectivePermissions?: EffectivePermissions,
): Verdict {
  const rule = brokenRule(factsOf(entry, effectivePermissions), { apiId, clientIp, permissions }, nowMs);
  const code = rule === undefined ? 'VALID' : RULES[rule].code;
  if (code === 'FORBIDDEN')
    return rule === 'address' ? { code, about: entry, isByAddress: true } : { code, about: entry };
  return effectivePermissions === undefined ? { code, entry } : { code, entry, effectivePermissions };
}

const factsOf = (entry: Entry, effectivePermissions: EffectivePermissions | undefined): KeyFacts => ({
  apiId: entry.epoch.apiId,
  enabled: entry.enabled,
  identity: effectivePermissions?.identity,
  expires: entry.expires,
  ranges: entry.ranges,
  slugSet: (effectivePermissions ?? entry.ownPermissions)?.slugSet,
});

/** Returns true if a key is enabled, and its identity too. */
export const isEnabled = (
  { enabled }: Entry,
  effectivePermissions: EffectivePermissions | undefined,
): boolean => enabled && effectivePermissions?.identity?.enabled !== false;
