import type { VerdictCounts } from '../../rules/verdict-codes.ts';

/** A verifier's report about itself, for humans; of decisions, only the disabling of unused keys depends on it. */
export interface VerifierStatus {
  /** Id of the process, which changes with each start. Ids sort by start. */
  readonly id: string;
  readonly host: string;
  readonly version: string;
  /** The protocol that the verifier speaks (protocol.ts). */
  readonly protocol: number;
  /** Unix milliseconds, on the verifier's clock. */
  readonly startedAt: number;
  readonly reportedAt: number;
  /** Verdicts since the start, by source; the hit rate is memory ÷ both. */
  readonly verdicts: { readonly memory: number; readonly redis: number };
  /** Verdicts since the start, by code. An earlier version of the verifier lacks some or all of them. */
  readonly codes?: Partial<VerdictCounts>;
  readonly keysInMemory: number;
  /** Settings that must fit the settings of other processes; absent in an earlier version of the verifier. */
  readonly settings?: {
    readonly foreignKeys: boolean;
    readonly foreignDigests?: readonly string[];
    readonly syncPeriodMs: number;
  };
  /**
   * Time by which its clock was ahead of that of Redis at its report before, milliseconds; 0 = not known yet; absent in an earlier
   * version of the verifier.
   */
  readonly clockOffMs?: number;
  /** Its REGION; absent = it has none, or is of an earlier version. */
  readonly region?: string;
  /**
   * Duration of its report before, milliseconds: about a round trip to Redis; 0 = not known yet; absent in an earlier version of the
   * verifier.
   */
  readonly roundTripMs?: number;
  /** When the first certificate of its listeners ends, Unix milliseconds; absent = they have none, or an earlier version. */
  readonly certificateEnds?: number;
  /**
   * The extent of its reported counts of verdicts, Unix milliseconds; absent = it counts none, or is of an earlier version.
   */
  readonly usage?: {
    /** All verdicts before this time are reported. */
    readonly untilMs: number;
    /** When it last lost counts. */
    readonly lostMs?: number;
  };
  /** The first `APIS_LISTED_MAX` of the followed APIs, those in trouble first. */
  readonly apis: readonly FollowedApi[];
  /** Number of followed APIs that `apis` lacks. */
  readonly apisNotShown: number;
  /** The shared log of roles and identities, followed like an API; absent = no key needed it yet. */
  readonly sharedLog?: Following;
}

/** The state of a verifier in one API. */
export interface FollowedApi extends Following {
  readonly apiId: string;
}

/** The state of a follower. */
export interface Following {
  /** The follower's name, as in `propagation.laggards`; empty before the first registration. */
  readonly member: string;
  /**
   * live: answers from memory. lapsed: in sync, but its lease is over. joining: not in sync yet, or no
   * longer.
   */
  readonly state: 'live' | 'lapsed' | 'joining';
  /** The sequence of the last change applied. */
  readonly position: number;
  /** Number of changes known to exist and not applied yet. */
  readonly lag: number;
  readonly leaseRemainingMs: number;
  /** When it saw latest that a control plane waits for no tokens, Unix milliseconds; absent = never, or of an earlier version. */
  readonly tokensWithheldAt?: number;
}

/** Maximum number of APIs in one report, so that it stays below about 20 KiB. */
export const APIS_LISTED_MAX = 100;

/** The report of a verifier that stops by itself, so that nobody takes it for lost. */
export const STOPPED_REPORT = 'stopped';
/** Time for which that report is kept, milliseconds. */
export const STOPPED_REPORT_MS = 600_000;

/** The header in which a verifier's `/openapi.json` sends the verifier's id. */
export const VERIFIER_ID_HEADER = 'X-Verifier-Id';
