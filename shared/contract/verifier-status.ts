import type { VerdictCounts } from './verdict-codes.ts';

/** A verifier's report about itself, for people to look at; nothing decides on it. */
export interface VerifierStatus {
  /** Id of the process; another after a restart. Ids sort by start. */
  readonly id: string;
  readonly host: string;
  readonly version: string;
  /** The protocol that it speaks (protocol.ts); absent where the verifier is of an earlier version, which is 1. */
  readonly protocol?: number;
  /** Unix milliseconds, on the verifier's clock. */
  readonly startedAt: number;
  readonly reportedAt: number;
  /** Verdicts since the start, by where they came from; the hit rate is memory ÷ both. */
  readonly verdicts: { readonly memory: number; readonly redis: number };
  /** Verdicts since the start, by what they were; absent, or without some of them, where the verifier is of an earlier version. */
  readonly codes?: Partial<VerdictCounts>;
  readonly keysInMemory: number;
  /** Settings that must fit those of others; absent where the verifier is of an earlier version. */
  readonly settings?: { readonly foreignKeys: boolean; readonly syncPeriodMs: number };
  /** The followed APIs, those in trouble first, the first `APIS_SHOWN_MAX` of them. */
  readonly apis: readonly FollowedApi[];
  /** Followed APIs that are not among `apis`. */
  readonly apisNotShown: number;
  /** Roles and identities, followed as an API is; absent where no key needed them yet. */
  readonly workspace?: Following;
}

/** A verifier's state in one API. */
export interface FollowedApi extends Following {
  readonly apiId: string;
}

/** State of what a verifier follows. */
export interface Following {
  /** The name of the registration, as `propagation.laggards` gives it; empty before the first. */
  readonly member: string;
  /** live: answers from memory. fenced: in sync until its lease ran out. joining: not in sync yet, or not any more. */
  readonly state: 'live' | 'fenced' | 'joining';
  /** The sequence of the last change applied. */
  readonly position: number;
  /** Changes known to exist and not applied yet. */
  readonly lag: number;
  readonly leaseRemainingMs: number;
}

/** Most APIs in one report, so that it stays below about 20 KiB. */
export const APIS_LISTED_MAX = 100;

/** The header by which a verifier's `/openapi.json` tells who it is. */
export const VERIFIER_ID_HEADER = 'X-Verifier-Id';
