import type { StoredFields } from '#shared/contract/key-record.ts';

/** A change of a key's credits. A refill of `''` is none, an absent one stays as it was. */
export type CreditsChange = CreditsOperation & {
  /** Name of the change, where it may be sent again: it is made once. */
  readonly operation?: string;
};
type CreditsOperation =
  | { readonly op: 'set'; readonly value: number; readonly refill?: string }
  | { readonly op: 'increment' | 'decrement'; readonly value: number }
  | { readonly op: 'refill'; readonly refill: string }
  /** From now on as many as are asked for. */
  | { readonly op: 'none' };

/** A key that takes the place of another one, whose change this is. */
export interface Successor {
  readonly keyId: string;
  readonly secretHash: string;
  /** Beginning of the secret, which may be shown. */
  readonly start: string;
  /** Random bytes of the secret, where they are not as many as usual. */
  readonly bytes: number | undefined;
  /** When the other key ends at the latest, Unix milliseconds; one that ends before stays so. */
  readonly latestMs: number;
  /** Name of the call where it is sent again: the key that it made before is replaced. `''` = none. */
  readonly operationId: string;
}

/** One change to be written. Values are as stored; `''` clears a field. */
export interface Write {
  readonly apiId: string;
  /** `create` makes a record of which followers may remember that there is none: an identity. Keys are made without an entry. */
  readonly operation: 'create' | 'update' | 'delete' | 'noop' | 'api-deleted';
  /** Empty where the operation is about the whole API. */
  readonly keyId: string;
  readonly fields: StoredFields;
  /** Of an update. */
  readonly credits?: CreditsChange;
  /** Of an update of nothing else. */
  readonly successor?: Successor;
  /** Refuse (CONFLICT) unless the record's version, or for `noop` the log's sequence, is this. */
  readonly condition?: string;
  /** The protocol that followers must speak for it, where its fields do not tell; see protocol.ts. */
  readonly needs?: number;
}

/** Followers are registered that speak an older protocol than a write needs: nothing was written. */
export interface TooOld {
  readonly status: 'TOO_OLD';
  readonly needs: number;
  readonly followers: number;
  /** Names of the first of them. */
  readonly names: readonly string[];
}

/**
 * Outcome of a write that was not made. UNLIMITED: the key has no credits that could be changed so.
 * REUSED: another change had the name of this one. EXISTS: what was to be created is there. No successor can be made
 * of one that has ENDED, was REROLLED already, or whose credits are SHARED by too many.
 */
export type WriteRefusal =
  | { readonly status: 'NOT_FOUND' | 'EXISTS' | 'CONFLICT' | 'UNLIMITED' | 'REUSED' | 'ENDED' }
  | { readonly status: 'REROLLED'; readonly successor: string }
  | { readonly status: 'SHARED'; readonly keys: number }
  | TooOld;

/** A change that is in the log. */
export interface LogEntry {
  readonly status: 'OK';
  readonly sequence: number;
  readonly hash: string;
  /** The longest lease that may have been granted before this write, milliseconds. */
  readonly leaseMs: number;
  /** Id of the server that wrote it, which no other has and it has until it restarts or is deposed; `''` = unknown. */
  readonly server: string;
  /** The record's version before it. */
  readonly previousVersion: string;
  /** The record's fields before it, for the audit log; all empty where it is about no key. */
  readonly before?: StoredFields;
  /** Credits after a change of them. */
  readonly credits?: {
    readonly remaining: number;
    /** True if holders are to give some back before the change is whole (`settleCredits`). */
    readonly isOwed: boolean;
  };
  /** Present where a successor was made. */
  readonly rerolled?: {
    /** When the key itself ends, as stored. */
    readonly expires: string;
    /** The key that an earlier call of the same name had made, and which is deleted. */
    readonly deleted: { readonly keyId: string; readonly secretHash: string } | undefined;
  };
  /** True if every required replica confirmed it; always true where none is required. */
  readonly replicated: boolean;
}

/**
 * State of a change in the log. LOST: a failover took it, and the log now tells another history. TRIMMED: the log no
 * longer reaches back to it, so that only who saw it on all replicas knows that it is there.
 */
export type LogStatus =
  | { readonly state: 'LOST' }
  | {
      readonly state: 'INTACT' | 'TRIMMED';
      readonly followers: number;
      /** Followers that have not acknowledged it, killed ones among them. */
      readonly laggards: number;
      readonly leaseMs: number;
      /** The highest sequence that some control plane saw on all replicas. */
      readonly replicatedSequence: number;
      readonly names: readonly string[];
    };

/** A follower whose next SYNC is refused, and which kill that was: a failover may lose one and another follow. */
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
      /** Those that this attempt killed. */
      readonly killed: readonly KilledFollower[];
      /** Names of those that it removed, because they can hold no lease. */
      readonly removed: readonly string[];
    };

/**
 * The change logs of all APIs, as the control plane uses them. Every method acts atomically on the primary and
 * rejects with SERVICE_UNAVAILABLE when it is out of reach, deposed or refuses; a `write` that rejects has
 * either not happened or its outcome is unknown, as the message says, and is never repeated by itself.
 */
export interface ChangeLog {
  write(write: Write): Promise<LogEntry | WriteRefusal>;
  /** @param change `hash` may be empty when unknown; then the entry's keyId identifies it */
  check(change: {
    readonly apiId: string;
    readonly sequence: number;
    readonly hash: string;
    readonly keyId: string;
    /** True if the caller saw it on all replicas; recorded for others. */
    readonly replicated: boolean;
    /** Number of laggards to name. */
    readonly names: number;
    /** Later change that the same log must hold too, or else the answer is LOST: proves where the answer comes from. */
    readonly later?: Pick<LogEntry, 'sequence' | 'hash'>;
  }): Promise<LogStatus>;
  /** Removes or kills every follower that has not acknowledged the change, if the history still holds it. */
  close(apiId: string, change: Pick<LogEntry, 'sequence' | 'hash' | 'server'>): Promise<Closing>;
  /** Removes followers, unless they are no longer killed, or by another kill. */
  reap(apiId: string, killed: readonly KilledFollower[]): Promise<number>;
}

/** A change log that takes many changes of one API in one go, each an ordinary change. */
export interface BatchedChangeLog extends ChangeLog {
  /**
   * Writes changes of one API, of a key each, one after the other on one connection: a history that has one of them has
   * those before it. Rejects when any of them failed, and then any may have been written.
   */
  writeAll(writes: readonly Write[]): Promise<readonly (LogEntry | WriteRefusal)[]>;
  /** Changes that the slowest follower has not acknowledged, killed ones apart: they begin anew in any case. */
  lag(apiId: string): Promise<number>;
}
