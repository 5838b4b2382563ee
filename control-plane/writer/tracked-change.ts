import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { backoffMs, type Clock, pause } from '#shared/lang/clock.ts';
import type { ChangeLog, LogEntry, Write } from './change-log-port.ts';
import type { Fence, PendingEntry } from './fence.ts';
import { isRefusal } from './pending-changes.ts';
import { writeError } from './write-error.ts';

const REWRITE_FIRST_MS = 50;
const REWRITE_MAX_MS = 2000;
const REWRITE_ATTEMPTS_MAX = 50;

/** A change as requested, and its entry in the log. */
export interface WrittenChange {
  readonly write: Write;
  readonly entry: LogEntry;
}

/**
 * An incomplete change, or several that were written together; `entry` is replaced if the change is written
 * again.
 */
export interface TrackedChange {
  /** The entry; of several changes, the last. */
  entry: PendingEntry;
  /**
   * Settles when every change is complete, or cannot become so. Rejects with CONFLICT if a failover lost the
   * write of a single change and another write came after it.
   */
  readonly completion: Promise<'acks' | 'fence'>;
  /** Of several changes: the errors of those that failed, by key. */
  readonly failures: Map<string, ApiError>;
  /** Of several changes: the current sequence of each key's change in the log. */
  readonly sequences: Map<string, number>;
}

/** Events of tracked changes, for logs and metrics. */
export interface TrackerEvents {
  /** A disable or delete that a failover lost was written again, or could not be. */
  rewritten(apiId: string, keyId: string, outcome: 'written' | 'conflict' | 'given up'): void;
}

interface TrackerOptions {
  readonly log: ChangeLog;
  readonly fence: Fence;
  readonly clock: Clock;
  readonly events: TrackerEvents;
  /** Returns a random number from 0 to below 1, for the backoff. */
  readonly chance: () => number;
  readonly stop: AbortSignal;
}

/** Follows changes until they are complete: a disable or delete that a failover lost is written again. */
export class ChangeTracker {
  readonly #options: TrackerOptions;

  constructor(options: TrackerOptions) {
    this.#options = options;
  }

  /** Follows one change from its write on. */
  begin(change: WrittenChange): TrackedChange {
    const { promise, resolve, reject } = Promise.withResolvers<'acks' | 'fence'>();
    promise.catch(() => undefined); // the caller may already have the response
    const trackedChange = newTrackedChange(this.#track(change), promise);
    this.#accompany(trackedChange, change).then(resolve, reject);
    return trackedChange;
  }

  /**
   * Follows changes that were written one after the other on one connection. A follower with the last change
   * has all, so only the last is watched. If a failover lost the last change, earlier ones may still exist,
   * so each is then followed on its own.
   */
  beginTogether(changes: readonly WrittenChange[], last: WrittenChange): TrackedChange {
    const { promise, resolve, reject } = Promise.withResolvers<'acks' | 'fence'>();
    promise.catch(() => undefined);
    const trackedChange = newTrackedChange(this.#track(last, changes.length), promise);
    for (const { write, entry } of changes) trackedChange.sequences.set(write.keyId, entry.sequence);
    this.#accompanyTogether(trackedChange, changes).then(resolve, reject);
    return trackedChange;
  }

  async #accompany(
    trackedChange: TrackedChange,
    { write, entry: firstEntry }: WrittenChange,
  ): Promise<'acks' | 'fence'> {
    for (let condition = firstEntry.previousVersion; ; ) {
      const outcome = await trackedChange.entry.settled;
      if (outcome !== 'lost') return outcome;
      if (!isRefusal(write)) throw new ApiError('CONFLICT', 'the write was lost in a failover of Redis');
      const entry = await this.#rewrite({ ...write, condition });
      trackedChange.entry = this.#track({ write, entry });
      condition = entry.previousVersion;
    }
  }

  async #accompanyTogether(
    trackedChange: TrackedChange,
    changes: readonly WrittenChange[],
  ): Promise<'acks' | 'fence'> {
    const outcome = await trackedChange.entry.settled;
    if (outcome !== 'lost') return outcome;
    const alone = changes.map((change) => ({ keyId: change.write.keyId, single: this.begin(change) }));
    let by: 'acks' | 'fence' = 'acks';
    let latest = 0;
    for (const { keyId, single } of alone) {
      try {
        if ((await single.completion) === 'fence') by = 'fence';
        const { entry } = single;
        trackedChange.sequences.set(keyId, entry.sequence);
        if (entry.sequence > latest) trackedChange.entry = entry;
        latest = trackedChange.entry.sequence;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        trackedChange.failures.set(keyId, error);
      }
    }
    return by;
  }

  #track({ write, entry }: WrittenChange, changes = 1): PendingEntry {
    return this.#options.fence.track(write.apiId, write.keyId, entry, changes);
  }

  async #rewrite(write: Write): Promise<LogEntry> {
    const { log, clock, events, chance, stop } = this.#options;
    for (let attempt = 0; attempt < REWRITE_ATTEMPTS_MAX && !stop.aborted; attempt++) {
      try {
        const result = await log.write(write);
        events.rewritten(write.apiId, write.keyId, result.status === 'OK' ? 'written' : 'conflict');
        if (result.status === 'OK') return result;
        if (result.status === 'TOO_OLD') throw writeError(write, result);
        throw new ApiError('CONFLICT', 'the write was lost in a failover of Redis and overtaken by another');
      } catch (error) {
        if (!(error instanceof ApiError) || error.code !== 'SERVICE_UNAVAILABLE') throw error;
        await pause(clock, backoffMs(attempt, REWRITE_FIRST_MS, REWRITE_MAX_MS, chance), stop);
      }
    }
    events.rewritten(write.apiId, write.keyId, 'given up');
    throw unavailable('the write was lost in a failover of Redis and could not be written again');
  }
}

const newTrackedChange = (entry: PendingEntry, completion: TrackedChange['completion']): TrackedChange => ({
  entry,
  completion,
  failures: new Map(),
  sequences: new Map(),
});
