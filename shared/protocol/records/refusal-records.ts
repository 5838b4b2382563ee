import type { NotedFacts } from '../../rules/presenter.ts';
import type { RuleName } from '../../rules/rules.ts';

/** Refusals of an API's keys in Redis: the latest ones of each of the latest refused keys, and the latest ones of all. */

/** Number of refusals that are kept for a key, of keys that are kept for an API, and of refusals of all its keys in order. */
export const REFUSALS_KEPT = { ofKey: 50, keysOfApi: 2000, ofApi: 1000 } as const;
/** Time after the latest refusal of a key, or of an API, at which its refusals are forgotten. */
export const REFUSALS_KEPT_S = 7 * 86_400;
/** Maximum length of the question in a refusal, in characters of JSON. A longer one is left out. */
export const QUESTION_JSON_MAX = 500;
/** Maximum length of the missing permissions in a refusal, in characters. The rest is left out. */
export const MISSING_LENGTH_MAX = 300;

/** The requirements of a refused question, in the form of `keys.explain`. */
export interface RefusedQuestion {
  readonly apiId?: string;
  /** A permission query as text. */
  readonly permissions?: string;
  /** Credits; absent = 1. */
  readonly cost?: number;
  readonly ratelimits?: readonly {
    readonly name: string;
    readonly cost: number;
    /** With `duration`, in milliseconds: the question defines the limit. */
    readonly limit?: number;
    readonly duration?: number;
  }[];
}

/** The cause of a refusal, as far as the code does not tell it. */
export interface RefusalCause {
  /** Permissions of the query that the key lacked. */
  readonly missingPermissions?: readonly string[];
  /** The rate limit that refused, with what was left. `duration` is in milliseconds. */
  readonly ratelimit?: {
    readonly name: string;
    readonly limit: number;
    readonly duration: number;
    readonly remaining: number;
    readonly cost: number;
  };
  /** The concurrency limit that refused. */
  readonly concurrency?: { readonly name: string; readonly limit: number };
  readonly credits?: { readonly remaining: number; readonly cost: number };
  /** When the key expired, in Unix milliseconds. */
  readonly expires?: number;
  /** The identity that is disabled. */
  readonly externalId?: string;
}

/** A refusal as Redis has it, as JSON of at most 2 kB. */
export interface RefusalRecord extends NotedFacts {
  /** Time by the verifier's clock, in Unix milliseconds. */
  readonly t: number;
  /** Code of the verdict. */
  readonly c: string;
  /** The rule that the key broke; absent = credits or a rate limit refused. */
  readonly w?: RuleName | undefined;
  /** absent = longer than QUESTION_JSON_MAX */
  readonly q?: RefusedQuestion | undefined;
  readonly d?: RefusalCause | undefined;
  /** Id of the request, as the answer had it. */
  readonly r: string;
  /** Id of the verifier in the fleet's list. */
  readonly v: string;
  /** Method and path of the client's request, without the query, if the gateway told them. */
  readonly p?: string | undefined;
}
