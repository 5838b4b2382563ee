import type { Change } from '../log/change.ts';

/** The place of a secret's record. Immutable. */
export interface Pointer {
  readonly apiId: string;
  readonly keyId: string;
}

/** The reply to REGISTER: the position of the log, and the lease. */
export interface RegisterReply {
  readonly nonce: string;
  readonly sequence: number;
  readonly hash: string;
  readonly leaseMs: number;
  readonly apiDeleted: boolean;
  /** Mark of the last creation; see `CreationMark`. */
  readonly creations: CreationMark;
  /** Number of identities; only in the shared log. */
  readonly identities: number;
}

/**
 * A creation mark `<number>-<hash>`: the number of an API's creations, with a hash over all of them. `0-`
 * stands for none. The hash is empty if the keys are older than creation marks.
 */
export type CreationMark = string;

/** The content of a SYNC request. */
export interface SyncRequest {
  readonly member: string;
  readonly position: number;
  readonly hash: string;
  /** The creations that the follower has seen. */
  readonly creations: CreationMark;
  readonly nonce: string;
  /** The key whose record SYNC reads in the same atomic step. */
  readonly keyId?: string;
  /** The hash of the key's secret, in place of `keyId`; only if the session `findsKeys`. */
  readonly secretHash?: string;
}

/** The reply to SYNC. Except for `nonce` and `status`, its fields are meaningful only if the status is OK. */
export interface SyncReply {
  readonly nonce: string;
  /** ELSEWHERE: the secret leads to no key of this API, and SYNC did nothing else. */
  readonly status: 'OK' | 'NOREG' | 'DIVERGED' | 'TRIMMED' | 'REFUSED' | 'ELSEWHERE';
  readonly sequence: number;
  readonly hash: string;
  readonly leaseMs: number;
  readonly apiDeleted: boolean;
  /** All creations in Redis. The request's creations are a prefix of them. */
  readonly creations: CreationMark;
  /** The entries after the request's position, in order. If there are too many, only the first ones. */
  readonly entries: readonly Change[];
  /**
   * `[named, creation number, …fields in the order of KEY_FIELDS]`, `named` as for `readNamed`; empty = no such
   * record.
   */
  readonly record: readonly string[];
  /** The clock of Redis, Unix milliseconds, if time may be lent to outsiders; else 0 or absent. */
  readonly lendsAtMs?: number;
  /** To whom; absent = the API's id. */
  readonly audiences?: readonly string[];
  /** True if an entry is of a control plane that does not wait for outsiders, because it is of an older release. */
  readonly hasUntimed?: boolean;
  /** The place of the record, for a request with `secretHash`; undefined = no such record. */
  readonly pointer?: Pointer | undefined;
}

/** The content of a request to a replica nearby, as in SYNC. */
export type NearbyRequest = Omit<SyncRequest, 'member'>;

/** The reply of a replica nearby. */
export interface NearbyReply {
  readonly nonce: string;
  /**
   * SAME: the record is as the follower could have read it from the primary at its position. ELSEWHERE: here the secret leads to no
   * key of this API. OTHER: this replica cannot tell.
   */
  readonly status: 'SAME' | 'ELSEWHERE' | 'OTHER';
  /** As in SyncReply; only if SAME. */
  readonly record: readonly string[];
  /** The place of the secret's key here, which only leads; undefined = there is none. */
  readonly pointer?: Pointer;
}

/**
 * Replicas that are nearer than the primary. They may be late, or have another history: nothing that they lack counts, and they
 * grant nothing. Its methods never reject; undefined = no replica can tell.
 */
export interface Nearby {
  /** True if `read` can find a key by its secret; false in a Redis Cluster. */
  readonly findsKeys: boolean;
  read(apiId: string, request: NearbyRequest): Promise<NearbyReply | undefined>;
  /** As in Directory. */
  lookUp(...secretHashes: readonly string[]): Promise<Pointer | undefined>;
}

/**
 * One conversation about one API with the Redis primary that has it. It is over when its connection ends;
 * pending replies then reject, and only a new session can continue. Every method rejects with
 * SERVICE_UNAVAILABLE if Redis is out of reach or refuses.
 */
export interface Session {
  /**
   * True if a SYNC can find a key by its secret. False in a Redis Cluster, where the pointer may be on
   * another node.
   */
  readonly findsKeys: boolean;
  /**
   * Resolves when Redis has confirmed the subscription. Each message arrives complete, but perhaps late,
   * twice or never.
   * @param onRecall called with each pool whose credits other verifiers need
   */
  subscribe(onMessage: (message: string) => void, onRecall: (pool: string) => void): Promise<void>;
  /**
   * Resolves when all required replicas have the registration. Rejects otherwise, and if the API needs a
   * later protocol.
   */
  register(member: string, nonce: string): Promise<RegisterReply>;
  sync(request: SyncRequest): Promise<SyncReply>;
  /** Removes a member of this process. Only for a member without memory and lease. */
  leave(member: string): Promise<void>;
  /** Calls `listener` once, when the connection has ended. */
  onEnd(listener: () => void): void;
  /** Ends the conversation. `cut` also ends its connection, which may be stuck. */
  end(mode: 'quietly' | 'cut'): void;
}

/** The part of Redis that a verifier needs. */
export interface Directory {
  /** Time since Redis last answered anything, milliseconds. */
  readonly silentMs: number;
  /** undefined = every look-up goes to the primary. */
  readonly nearby?: Nearby | undefined;
  /** Opens a session for an API. Rejects with SERVICE_UNAVAILABLE. */
  open(apiId: string): Promise<Session>;
  /** Finds the key with this secret, the first of several; undefined = none. Rejects with SERVICE_UNAVAILABLE. */
  lookUp(...secretHashes: readonly string[]): Promise<Pointer | undefined>;
}
