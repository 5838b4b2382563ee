import type { Change } from '#shared/contract/change.ts';

/** The place of a secret's record. Immutable. */
export interface Pointer {
  readonly apiId: string;
  readonly keyId: string;
}

/** The reply to REGISTER: where the log is, and the lease it grants. */
export interface RegisterReply {
  readonly nonce: string;
  readonly sequence: number;
  readonly hash: string;
  readonly leaseMs: number;
  readonly apiDeleted: boolean;
  /** Mark of the last creation; see `Mark`. */
  readonly creations: CreationMark;
  /** Identities that there are; only of the shared log. */
  readonly identities: number;
}

/**
 * `<number>-<hash>`: the creations of an API's keys up to that number, with a hash over all of them. `0-` stands for
 * none. The hash is empty where the keys are older than these marks.
 */
export type CreationMark = string;

/** The content of a SYNC request. */
export interface SyncRequest {
  readonly member: string;
  readonly position: number;
  readonly hash: string;
  /** The creations that were seen. */
  readonly creations: CreationMark;
  readonly nonce: string;
  /** The key whose record to read in the same atomic step. */
  readonly keyId?: string;
  /** The same by the hash of its secret; only where the session `findsKeys`. */
  readonly secretHash?: string;
}

/** The reply to SYNC. Everything but `nonce` and `status` is meaningful only where that is OK. */
export interface SyncReply {
  readonly nonce: string;
  /** ELSEWHERE: the secret asked for leads to no key of this API, and nothing else was done. */
  readonly status: 'OK' | 'NOREG' | 'DIVERGED' | 'TRIMMED' | 'ELSEWHERE';
  readonly sequence: number;
  readonly hash: string;
  readonly leaseMs: number;
  readonly apiDeleted: boolean;
  /** All creations there are; those of the request are a prefix of them. */
  readonly creations: CreationMark;
  /** The entries after the request's position, in order; not all of them when there are too many. */
  readonly entries: readonly Change[];
  /** `[secretHash, or secretHash and pool, creation number, …fields in the order of KEY_FIELDS]`; empty when there is no such record. */
  readonly record: readonly string[];
  /** The place of the record, for a request with `secretHash`; undefined when there is none. */
  readonly pointer?: Pointer | undefined;
}

/** One turn of an exchange: all that a holder says of one pool, and what it asks for. */
export interface PoolTurn {
  readonly pool: string;
  /** Higher than those before it, under the same name. */
  readonly turn: number;
  /** All that was spent under this name; undefined = what was said last. */
  readonly spent: number | undefined;
  /** Credits that were granted, are not spent, and are not given back. */
  readonly kept: number;
  /** Needs of those that wait, in their order, each run of equal ones together. */
  readonly needs: readonly { readonly cost: number; readonly times: number }[];
  /** The slice asked for besides, which `kept` is part of. */
  readonly slice: number;
  /** Of a rate limit; undefined = a pool of credits. */
  readonly window?: {
    readonly limit: number;
    readonly durationMs: number;
    /** The window that `spent` and `kept` are of; undefined = none. */
    readonly number: number | undefined;
    /** True if a request brings it. */
    readonly isBrought?: boolean | undefined;
  };
}

/** The reply to a turn. All but `turn` and `status` is meaningful only where a pool was there and knew the name. */
export interface PoolReply {
  readonly turn: number;
  /** As exchange.lua has them. */
  readonly status: 'OK' | 'NONE' | 'SPOKEN' | 'WAIT' | 'HELD' | 'NOREG' | 'OLD' | 'STALE' | 'FULL';
  /** All that was granted to this name so far. */
  readonly granted: number;
  /** All that Redis knows to be spent under it. */
  readonly spent: number;
  /** Part of what this turn granted that is not in `total`, because it is as good as spent. */
  readonly reserve: number;
  /** Credits left, as far as Redis knows. */
  readonly total: number;
  /** Time until there will be more: the next refill, or for a rate limit so much that `leastNeed` fits; -1 = never, or unknown. */
  readonly refillMs: number;
  /** The least need that was not met, which the status is about; 0 = all were. */
  readonly leastNeed: number;
  /** Of a rate limit: which window it is, and how long it still lasts. */
  readonly window?: { readonly number: number; readonly leftMs: number };
}

/**
 * One conversation about one API with the primary that owns it. When its connection ends it is over, replies
 * in flight reject, and only another session can follow. Every method rejects with SERVICE_UNAVAILABLE when
 * Redis is out of reach or refuses.
 */
export interface Session {
  /** True if a SYNC can find a key by its secret. Not in a Redis Cluster, where the pointer may lie on another node. */
  readonly findsKeys: boolean;
  /**
   * Resolves when Redis has confirmed the subscription. Messages arrive whole, perhaps late, twice or never.
   * @param onRecall told of pools that others need
   */
  subscribe(onMessage: (message: string) => void, onRecall: (pool: string) => void): Promise<void>;
  /** Resolves when all replicas that must hold the registration do; rejects otherwise, and where the API needs a later protocol. */
  register(member: string, nonce: string): Promise<RegisterReply>;
  sync(request: SyncRequest): Promise<SyncReply>;
  /** Takes a member of this process out. Only for one whose memory and lease are gone. */
  leave(member: string): Promise<void>;
  /** Called once when the connection has ended. */
  onEnd(listener: () => void): void;
  /** Ends the conversation; `cut` also ends the connection it runs over, which may be stuck. */
  end(mode: 'quietly' | 'cut'): void;
}

/** Redis, as far as a verifier needs it. */
export interface Directory {
  /** Opens a session for an API. Rejects with SERVICE_UNAVAILABLE. */
  open(apiId: string): Promise<Session>;
  /** Finds the key with this secret; undefined when there is none. Rejects with SERVICE_UNAVAILABLE. */
  lookUp(secretHash: string): Promise<Pointer | undefined>;
  /**
   * Takes turns of pools, in this order. Resolves when all replicas that must hold what they wrote do; rejects otherwise with
   * SERVICE_UNAVAILABLE, and then they may have been taken, or may be later.
   */
  exchange(apiId: string, member: string, turns: readonly PoolTurn[]): Promise<readonly PoolReply[]>;
}
