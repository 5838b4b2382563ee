import type { Entry } from '#shared/protocol/follower/key-cache.ts';
import type { EffectivePermissions } from '#shared/protocol/follower/permissions.ts';
import type { Limit } from '#shared/protocol/records/limits-in-memory.ts';
import { brokenRule, type KeyFacts, RULES, type RuleName } from '#shared/rules/rules.ts';
import type { VerdictCode } from '#shared/rules/verdict-codes.ts';
import type { Question } from './question.ts';

/** A decision on a key. `entry` is present if the table of verdicts says that the response shows the key. */
export interface Verdict {
  readonly code: VerdictCode;
  readonly entry?: Entry;
  /** The key of a verdict that does not show it; undefined = `entry`, or none. Never part of an answer. */
  readonly about?: Entry;
  /** The rule that the key broke; undefined = none. */
  readonly rule?: RuleName;
  /** The outcome for credits and rate limits; undefined = the key has none, or was refused anyway. */
  readonly spending?: Spending;
  /**
   * The key's effective permissions; undefined = it has neither roles nor an identity, and `entry` is enough.
   */
  readonly effectivePermissions?: EffectivePermissions | undefined;
  /** The hold that the question asked for; undefined = it did not, or the key was refused. */
  readonly hold?: Hold;
  /** Stamps for the API behind a gateway, by their headers; undefined = none. */
  readonly stamps?: Readonly<Record<string, string>> | undefined;
}

/** The state of a rate limit or a concurrency limit after a verification. */
export interface LimitOutcome {
  readonly limit: Limit;
  readonly remaining: number;
  /** End of the current window, in Unix milliseconds; of places 0. */
  readonly reset: number;
  /** True if this limit is the reason why the key was refused. */
  readonly exceeded: boolean;
}

/** The outcome of a request that paid, or was refused. */
export interface Spending {
  readonly code: 'VALID' | 'RATE_LIMITED' | 'USAGE_EXCEEDED' | 'CONCURRENCY_EXCEEDED';
  /** Credits left; undefined = unlimited. */
  readonly remaining?: number | undefined;
  /** Limits that applied to the request. */
  readonly limits?: readonly LimitOutcome[] | undefined;
  /** Concurrency limits that applied to it. */
  readonly places?: readonly LimitOutcome[] | undefined;
  /** Milliseconds until a refused request may be repeated; undefined = never, unknown, or not refused. */
  readonly retryMs?: number | undefined;
  /** The cost that no wait makes fit: it is more than the limit, or than the credits left and a refill; undefined = one may. */
  readonly needed?: number | undefined;
}

/** A hold in an answer: an accepted question whose work has not ended. */
export interface Hold {
  readonly id: string;
  /** Unix milliseconds. */
  readonly expiresAt: number;
  /** Amounts that it took, if the question says `atLeast`: credits, and of rate limits; undefined = of none. */
  readonly credits?: number;
  readonly ratelimits?: readonly { readonly name: string; readonly cost: number }[];
}

/** A source of verdicts: `Verifier`, or an object with the same methods. */
export interface VerdictSource {
  /** Returns the verdict from memory, without waiting; undefined = the caller must call `lookUp`. */
  decide(question: Question): Verdict | undefined;
  /** Resolves with the verdict through Redis. Rejects with ApiError SERVICE_UNAVAILABLE if there is none. */
  lookUp(question: Question): Promise<Verdict>;
}

/**
 * Answers a question with its verdict: in this synchronous block if memory has it, so that the answer shows the key as it was
 * decided on; else after a look-up.
 */
export function answerOn<T>(
  verifier: VerdictSource,
  question: Question,
  answer: (verdict: Verdict) => T,
): T | Promise<Awaited<T>> {
  const verdict = verifier.decide(question);
  return verdict === undefined
    ? (verifier.lookUp(question).then(answer) as Promise<Awaited<T>>)
    : answer(verdict);
}

export const NOT_FOUND: Verdict = Object.freeze({ code: 'NOT_FOUND' });
export const FORBIDDEN: Verdict = Object.freeze({ code: 'FORBIDDEN' });

/**
 * Applies the rules to a known key of an API that this verifier answers for.
 * @param nowMs Unix time that never goes back
 * @param effectivePermissions the effective permissions of a key with roles or an identity
 */
export function ruleOn(
  entry: Entry,
  question: QuestionBasics,
  nowMs: number,
  effectivePermissions?: EffectivePermissions,
): Verdict {
  const { apiId, presenter, requirements } = question;
  const about = { apiId, presenter, permissions: requirements.permissions };
  const rule = brokenRule(factsOf(entry, effectivePermissions), about, nowMs);
  const code = rule === undefined ? 'VALID' : RULES[rule].code;
  if (code === 'FORBIDDEN' && rule) return { code, about: entry, rule };
  if (rule) return { code, entry, effectivePermissions, rule };
  return effectivePermissions === undefined ? { code, entry } : { code, entry, effectivePermissions };
}

const factsOf = (entry: Entry, effectivePermissions: EffectivePermissions | undefined): KeyFacts => ({
  apiId: entry.epoch.apiId,
  enabled: entry.enabled,
  identity: effectivePermissions?.identity,
  expires: entry.expires,
  ranges: entry.ranges,
  origins: entry.origins,
  slugSet: (effectivePermissions ?? entry.ownPermissions)?.slugSet,
});

/** Returns true if a key is enabled, and its identity too. */
export const isEnabled = (
  { enabled }: Entry,
  effectivePermissions: EffectivePermissions | undefined,
): boolean => enabled && effectivePermissions?.identity?.enabled !== false;

/** The parts of a question that rules and notes need. */
export type QuestionBasics = Pick<Question, 'apiId' | 'presenter' | 'requirements'>;

/** Returns the route of a request; undefined = its method or its target is unknown. */
export const routeOf = (method: string | undefined, target: string | undefined): string | undefined =>
  method && target ? `${method} ${target.split('?', 1)[0]}` : undefined;
