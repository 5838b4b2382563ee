import type { Clock } from '../../process/clock.ts';
import type { Limit } from '../records/limits-in-memory.ts';

/** The fields of a record on which companions depend. */
export interface Metered {
  /** Id under which the uses of its limits count. */
  readonly limitsId: string;
  /** Name of the pool with its credits; `''` = it has none. */
  readonly pool: string;
  readonly limits: readonly Limit[] | undefined;
}

/** Work that goes on under a follower's next name. */
export interface Held {
  /** False = it has ended. */
  readonly isHeld: boolean;
}

/** The follower's side of a companion. */
export interface CompanionHost {
  readonly apiId: string;
  /** The follower's name. */
  readonly member: string;
  readonly clock: Clock;
  /** Tells whether the lease under this name holds at this instant. */
  isLive(): boolean;
  /** The position in the log that was applied. */
  position(): number;
  /** Asks for a SYNC soon: Redis has changes that were not applied here, or does not know the name. */
  onBehind(): void;
}

/** Makes the companion of a follower that takes a new name. */
export type NewCompanion = (host: CompanionHost) => Companion;

/**
 * Whatever lives and dies with an epoch: a memory of more than records, which is good only under the follower's name and
 * lease. A follower of an API has one, and that of the shared log another. The follower promises the order of the calls.
 */
export interface Companion {
  /** True while work goes on, so that the follower stays. */
  readonly isHeld: boolean;
  /**
   * Tells that changes were applied: called in the synchronous block that applied them, after all of them, and before any is
   * acknowledged to Redis.
   * @param records the records that changed, each as it was in memory, if it was, and as it is now
   */
  changed(records: readonly Metered[]): void;
  /** Tells that other followers need what this one has of a pool: called with each such message under the name. */
  recall(pool: string): void;
  /**
   * Tells that the connection is another one: called when it ends, and again when the next one hears of changes. Redis may have
   * forgotten what it confirmed on the one before.
   */
  reconnected(): void;
  /** Returns the work that must go on under the next name: read when the name ends, and before that one is registered. */
  held(): readonly Held[];
  /**
   * Takes over the work of former names. The follower answers nothing under this name before it resolves, and leaves the
   * former names only then. Rejects with SERVICE_UNAVAILABLE; then the name ends.
   */
  bring(held: readonly Held[]): Promise<void>;
  /**
   * Ends with the name: called once, after its lease has ended. Resolves when Redis knows everything.
   * @param signal aborted = this process stops, and nothing waits any longer
   */
  close(signal: AbortSignal): Promise<void>;
}
