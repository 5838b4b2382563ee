import type { StoredFields } from '../records/key-record.ts';

/** A change to a key's credits. An empty refill or empty thresholds remove what the key has; absent ones stay. */
export type CreditsChange = CreditsOperation & {
  readonly refill?: string;
  readonly thresholds?: string;
  /** A name of the change, for calls that may be repeated: the change is made once. */
  readonly operation?: string;
};
type CreditsOperation =
  | { readonly op: 'set' | 'increment' | 'decrement'; readonly value: number }
  /** Changes only the refill and the thresholds. */
  | { readonly op: 'refill' }
  /** Removes the limit: credits are not counted any more. */
  | { readonly op: 'none' };

/** A key that replaces the key of this change. */
export interface Successor {
  readonly keyId: string;
  readonly secretHash: string;
  /** First characters of the secret, which may be shown. */
  readonly start: string;
  /** Random bytes of the secret, if not the usual number. */
  readonly bytes: number | undefined;
  /** Latest end of the replaced key, Unix milliseconds; an earlier end stays. */
  readonly latestMs: number;
  /** Name of the call. A repeated call replaces the key that the first call made. `''` = none. */
  readonly operationId: string;
}

/** One change to be written. Values are as stored; `''` clears a field. */
export interface Write {
  readonly apiId: string;
  /**
   * `create` makes a record whose absence followers may remember: an identity. Keys are created without a log
   * entry. `delete-again` is a deletion whose record may be gone: without one, it writes a no-op that names the key, behind
   * all that was about it.
   */
  readonly operation: 'create' | 'update' | 'delete' | 'delete-again' | 'noop' | 'api-deleted';
  /** Empty if the operation concerns the whole API. */
  readonly keyId: string;
  readonly fields: StoredFields;
  /** Only in an update or a creation. */
  readonly credits?: CreditsChange;
  /** Only in an update that changes nothing else. */
  readonly successor?: Successor;
  /**
   * The write is refused with CONFLICT unless the record's version (for `noop`: the log's sequence) equals
   * this.
   */
  readonly condition?: string;
  /** The write is refused with CONFLICT unless this is the sequence of the record's last change. */
  readonly ifSequence?: number | undefined;
  /** The deletion is refused with CONFLICT unless this set declares the record, or the API. */
  readonly ifManagedBy?: string | undefined;
  /**
   * The protocol that followers must speak to obey the change, default 1; see protocol.ts.
   */
  readonly needs?: number;
  /** True of a no-op behind a change of the head that ends what outsiders were lent. */
  readonly endsLent?: true;
}

/**
 * A refusal because registered followers speak an older protocol than the write needs: nothing was written.
 */
export interface TooOld {
  readonly status: 'TOO_OLD';
  readonly needs: number;
  readonly followers: number;
  /** Names of the first of these followers. */
  readonly names: readonly string[];
}

/**
 * The reason why a write was refused. UNLIMITED: the key has no credits that could be changed this way.
 * REUSED: another change had this name. EXISTS: the record to be created exists. A key that has ENDED, was
 * already REROLLED, whose credits too many keys have SHARED, or which would live TOO_LONG cannot be rerolled.
 */
export type WriteRefusal =
  | { readonly status: 'NOT_FOUND' | 'EXISTS' | 'UNLIMITED' | 'REUSED' | 'ENDED' }
  /** `version`: that of the record, if it is not what the write required. */
  | { readonly status: 'CONFLICT'; readonly version?: string }
  /** `name`: both a rate limit and a concurrency limit would have it. */
  | { readonly status: 'NAME_TAKEN'; readonly name: string }
  | { readonly status: 'REROLLED'; readonly successor: string }
  | { readonly status: 'SHARED'; readonly keys: number }
  /** `source`: the key whose expiry the new one would have. */
  | { readonly status: 'TOO_LONG'; readonly longestMs: number; readonly source: string }
  | TooOld;

/** A change that is in the log. */
export interface LogEntry {
  readonly status: 'OK';
  readonly sequence: number;
  readonly hash: string;
  /** The longest lease that may have been granted before this write, milliseconds. */
  readonly leaseMs: number;
  /**
   * Id of the server that wrote the change, unique, and constant until the server restarts or is deposed;
   * `''` = unknown.
   */
  readonly server: string;
  /** The record's version before the change. */
  readonly previousVersion: string;
  /** The changed fields before the change, for the audit log: of a deleted key, all. */
  readonly before?: StoredFields;
  /** The credits after a change to them. */
  readonly credits?: {
    readonly remaining: number;
    /** True if holders must give some back before the change is complete (`endDebt`). */
    readonly isOwed: boolean;
  };
  /** Present if a successor was made. */
  readonly rerolled?: {
    /** When the replaced key ends, as stored. */
    readonly expires: string;
    /** The key that an earlier call of the same name had made; it was deleted. */
    readonly deleted: { readonly keyId: string; readonly secretHash: string } | undefined;
  };
  /**
   * For how long after the fence outsiders may still accept what they were lent before the change, milliseconds: 0 = until the
   * fence; absent = nobody was lent anything. Followers need no such time, because they acknowledge.
   */
  readonly outlivesMs?: number;
  /** True if every required replica confirmed the change; always true if none is required. */
  readonly replicated: boolean;
}

/**
 * State of a change in the log. LOST: a failover lost the change, and the log has another history. TRIMMED:
 * the log no longer reaches back to the change, so only a process that saw it on all replicas knows that it
 * exists.
 */
export type LogStatus =
  | { readonly state: 'LOST' }
  | {
      readonly state: 'INTACT' | 'TRIMMED';
      readonly followers: number;
      /** Followers that have not acknowledged the change, including killed ones. */
      readonly laggards: number;
      readonly leaseMs: number;
      /** The highest sequence that any control plane saw on all replicas. */
      readonly replicatedSequence: number;
      /**
       * Time since the change by the clock of Redis, less what lent time outlives the fence, milliseconds; `''` or absent = nobody
       * was lent anything.
       */
      readonly age?: string;
      /** The version of the key's record; `''` = there is none. */
      readonly version?: string;
      readonly names: readonly string[];
    };

/**
 * A follower whose next SYNC is refused, and the kill that caused it: a failover may lose a kill, and another
 * may follow.
 */
export interface KilledFollower {
  readonly name: string;
  readonly kill: number;
}

/** Outcome of an attempt to complete a change by fence. */
export type Closing =
  | { readonly state: 'LOST' }
  | {
      readonly state: 'INTACT';
      readonly followers: number;
      readonly leaseMs: number;
      /** Followers that this attempt killed. */
      readonly killed: readonly KilledFollower[];
      /** Names of the followers that this attempt removed because they can have no lease. */
      readonly removed: readonly string[];
    };

/**
 * The change logs of all APIs, as the control plane uses them. Every method acts atomically on the primary
 * and rejects with SERVICE_UNAVAILABLE if the primary is unreachable, deposed or refuses. A rejected `write`
 * either did not happen or has an unknown outcome, as its message says; it is never repeated automatically.
 */
export interface ChangeLog {
  write(write: Write): Promise<LogEntry | WriteRefusal>;
  /** @param change `hash` may be empty if unknown; then the entry's keyId identifies the change */
  check(change: {
    readonly apiId: string;
    readonly sequence: number;
    readonly hash: string;
    readonly keyId: string;
    /** True if the caller saw the change on all replicas; recorded for other callers. */
    readonly replicated: boolean;
    /** Maximum number of laggards to name. */
    readonly names: number;
    /**
     * A later change that the same log must also hold, else the answer is LOST; proves which history answers.
     */
    readonly later?: Pick<LogEntry, 'sequence' | 'hash'>;
  }): Promise<LogStatus>;
  /**
   * Removes or kills every follower that has not acknowledged the change, if the history still holds the
   * change.
   */
  close(apiId: string, change: Pick<LogEntry, 'sequence' | 'hash' | 'server'>): Promise<Closing>;
  /** Removes followers, except those that are no longer killed, or were killed again. */
  reap(apiId: string, killed: readonly KilledFollower[]): Promise<number>;
}

/** A change log that accepts many changes of one API together; each is an ordinary change. */
export interface BatchedChangeLog extends ChangeLog {
  /**
   * Writes changes of one API, each to a different key, one after the other on one connection. A Redis
   * that has one of them, even after a failover, has all the earlier ones too. Rejects if any write failed;
   * then some or all of the writes may have been made.
   */
  writeAll(writes: readonly Write[]): Promise<readonly (LogEntry | WriteRefusal)[]>;
  /**
   * The number of changes that the slowest live follower has not acknowledged. Killed followers do not count,
   * because they start afresh anyway.
   */
  lag(apiId: string): Promise<number>;
}
