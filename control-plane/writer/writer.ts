import { ApiError } from '#shared/contract/errors.ts';
import { type Clock, Waker } from '#shared/lang/clock.ts';
import { type BatchEvents, Batches, type BatchLimits, partialWriteError } from './batches.ts';
import type { BatchedChangeLog, LogEntry, Write } from './change-log-port.ts';
import type { Fence } from './fence.ts';
import { PendingChanges, type PendingLimits } from './pending-changes.ts';
import { ChangeTracker, type TrackedChange, type TrackerEvents } from './tracked-change.ts';
import { writeError } from './write-error.ts';

/** Progress of a change, as updateKey returns it. */
export interface Propagation {
  readonly state: 'complete' | 'pending';
  /**
   * `acks`: every registered verifier has applied the change. `fence`: verifiers that have not can no longer
   * answer.
   */
  readonly by?: 'acks' | 'fence';
  readonly sequence: number;
  /**
   * True if the write is as durable as the configuration promises (fsync; all replicas), as an inspection of
   * its server after the write found.
   */
  readonly durable: boolean;
  /** Number of followers registered for the API, as of the last check. */
  readonly verifiers: number;
  readonly waitedMs: number;
  /** Only while pending: the latest time of completion if Redis stays reachable, Unix milliseconds. */
  readonly completeBy?: number;
}

/** The state of an earlier change, with the first 100 followers that have not acknowledged it. */
export interface ChangeStatus extends Propagation {
  readonly laggards?: readonly string[];
}

/** Outcome for one of many changes. */
export type ChangeOutcome =
  | { readonly keyId: string; readonly sequence: number }
  | { readonly keyId: string; readonly failure: ApiError };

const LAGGARDS_NAMED_MAX = 100;

/** Limits on waiting, and the condition for a write to count. */
export interface PropagationLimits {
  /** Maximum time for which a caller waits, milliseconds. */
  readonly fenceWaitMs: number;
  readonly pending: PendingLimits;
  /** True if writes must be on replicas. */
  readonly replicated: boolean;
  readonly batch: Omit<BatchLimits, 'lagWaitMs'>;
}

interface PropagatorOptions {
  readonly log: BatchedChangeLog;
  readonly fence: Fence;
  readonly clock: Clock;
  readonly limits: PropagationLimits;
  readonly durable: (apiId: string) => boolean | Promise<boolean>;
  readonly events: TrackerEvents;
  /** Returns a random number from 0 to below 1, for the backoff. */
  readonly chance?: () => number;
}

/**
 * Writes changes and delays the response until they are complete. Changes reach verifiers in no other way.
 */
export class Propagator {
  readonly #options: PropagatorOptions;
  readonly #pending: PendingChanges;
  readonly #tracker: ChangeTracker;
  readonly #batches: Batches;
  readonly #stop = new AbortController();
  /** The waits of delayed callers. */
  readonly #waiters = new Set<Waker>();

  /** @param durable whether writes to that API before this call are durable; never rejects */
  constructor(options: PropagatorOptions) {
    this.#options = options;
    this.#pending = new PendingChanges(options.limits.pending);
    const { log, fence, clock, events, chance = Math.random } = options;
    const stop = this.#stop.signal;
    this.#tracker = new ChangeTracker({ log, fence, clock, events, chance, stop });
    const limits = { ...options.limits.batch, lagWaitMs: options.limits.fenceWaitMs };
    this.#batches = new Batches({ log, clock, limits, tracker: this.#tracker, stop });
  }

  /**
   * Writes a change and resolves when it is complete, or after `min(waitMs, FENCE_WAIT_MS)` with `pending`.
   * @param onWrite is called with the log entry as soon as it is written
   * @returns undefined if there is no such key or API. Rejects with SERVICE_UNAVAILABLE (not written, or
   * outcome unknown), CONFLICT or VERIFIERS_TOO_OLD.
   */
  async apply(
    write: Write,
    waitMs = Number.POSITIVE_INFINITY,
    onWrite?: (entry: LogEntry) => void,
  ): Promise<Propagation | undefined> {
    const end = this.#pending.begin(write);
    const startedAtMs = this.#options.clock.monotonicMs();
    const entry = await this.#write(write, end);
    if (!entry) return undefined;
    onWrite?.(entry);
    const trackedChange = this.#tracker.begin({ write, entry });
    trackedChange.completion.then(end, end);

    const first = trackedChange.entry;
    const durability = this.#options.durable(write.apiId);
    const by = await this.#hold(trackedChange.completion, waitMs);
    // If it was written again after a failover, it is on another server.
    const durable = await (trackedChange.entry === first ? durability : this.#options.durable(write.apiId));
    return this.#report([trackedChange], by, durable, startedAtMs);
  }

  /**
   * Writes changes of one API, each to a different key, and resolves once all are complete, with the
   * propagation of the last change and the outcome of each.
   * @returns no `propagation` if nothing was changed. Rejects with SERVICE_UNAVAILABLE; then any of the
   * changes may have been written.
   */
  async applyAll(
    writes: readonly [Write, ...Write[]],
    waitMs = Number.POSITIVE_INFINITY,
    events: BatchEvents = {},
  ): Promise<{ readonly outcomes: readonly ChangeOutcome[]; readonly propagation?: Propagation }> {
    const [{ apiId }] = writes;
    const end = this.#pending.begin(writes[0], writes.length);
    const startedAtMs = this.#options.clock.monotonicMs();
    const trackedChanges: TrackedChange[] = [];
    let refusals: ReadonlyMap<string, ApiError>;
    try {
      refusals = await this.#batches.write(writes, trackedChanges, events);
    } catch (error) {
      throw partialWriteError(error);
    } finally {
      void Promise.allSettled(trackedChanges.map(({ completion }) => completion)).then(end);
    }
    const firsts = trackedChanges.map(({ entry }) => entry);
    const durability = this.#options.durable(apiId);
    const completion = togetherBy(trackedChanges);
    completion.catch(() => undefined); // the caller may already have the response
    const by = await this.#hold(completion, waitMs);
    const isFirstWrite = trackedChanges.every(({ entry }, i) => entry === firsts[i]);
    const durable = await (isFirstWrite ? durability : this.#options.durable(apiId));
    const outcomes = writes.map(({ keyId }) => {
      const trackedChange = trackedChanges.find(({ sequences }) => sequences.has(keyId));
      const failure = refusals.get(keyId) ?? trackedChange?.failures.get(keyId);
      return failure ? { keyId, failure } : { keyId, sequence: trackedChange?.sequences.get(keyId) ?? 0 };
    });
    if (!outcomes.some((outcome) => 'sequence' in outcome)) return { outcomes };
    return { outcomes, propagation: this.#report(trackedChanges, by, durable, startedAtMs) };
  }

  /**
   * Returns a function that returns the rest of a call's waiting time, milliseconds, for calls that wait more
   * than once; undefined = no limit.
   */
  remainingTime(waitMs: number | undefined): () => number | undefined {
    const { clock } = this.#options;
    if (waitMs === undefined) return () => undefined;
    const endsAtMs = clock.monotonicMs() + waitMs;
    return () => Math.max(0, endsAtMs - clock.monotonicMs());
  }

  /**
   * Status of an earlier change, whichever control plane wrote it.
   * @param isLatest true if the key's record names this change as its latest, so that it certainly exists
   * @returns undefined if the key does not exist; rejects with CONFLICT if a failover lost the change, or may
   * have
   */
  async status(
    apiId: string,
    keyId: string,
    sequence: number | undefined,
    isLatest = false,
  ): Promise<ChangeStatus | undefined> {
    if (sequence === undefined) return undefined;
    if (sequence === 0)
      return {
        state: 'complete',
        sequence,
        durable: await this.#options.durable(apiId),
        verifiers: 0,
        waitedMs: 0,
      };
    const change = { apiId, keyId, sequence, hash: '', replicated: false, names: LAGGARDS_NAMED_MAX };
    const logStatus = await this.#options.log.check(change);
    if (logStatus.state === 'LOST')
      throw new ApiError('CONFLICT', `sequence: ${sequence} is not a change of this key`);
    if (logStatus.state === 'TRIMMED' && this.#options.limits.replicated && !isLatest)
      throw new ApiError('CONFLICT', `sequence: the log no longer reaches back to ${sequence}`);
    const replicated = !this.#options.limits.replicated || logStatus.replicatedSequence >= sequence;
    return {
      state: logStatus.laggards === 0 && replicated ? 'complete' : 'pending',
      sequence,
      durable: replicated && (await this.#options.durable(apiId)),
      verifiers: logStatus.followers,
      waitedMs: 0,
      laggards: logStatus.names,
    };
  }

  /**
   * Answers every waiting call with `pending`; the sweeps of other control planes continue with incomplete
   * changes.
   */
  stop(): void {
    this.#stop.abort();
    for (const waiter of this.#waiters) waiter.wake();
    this.#options.fence.stop();
  }

  /** Writes a change; undefined if there is no such key or API. Calls `end` if no change began. */
  async #write(write: Write, end: () => void): Promise<LogEntry | undefined> {
    try {
      const result = await this.#options.log.write(write);
      if (result.status === 'OK') return result;
      if (result.status !== 'NOT_FOUND') throw writeError(write, result);
      end();
      return undefined;
    } catch (error) {
      end();
      throw error;
    }
  }

  /** @param by how all changes became complete; undefined if some are not complete */
  #report(
    trackedChanges: readonly TrackedChange[],
    by: 'acks' | 'fence' | undefined,
    durable: boolean,
    startedAtMs: number,
  ): Propagation {
    const { clock } = this.#options;
    const changes = trackedChanges.map(({ entry }) => entry);
    const last = changes.reduce((a, b) => (b.sequence > a.sequence ? b : a));
    const nowMs = clock.monotonicMs();
    const closesAtMs = Math.max(...changes.map((change) => change.closesAtMs));
    return {
      state: by ? 'complete' : 'pending',
      ...(by ? { by } : {}),
      sequence: last.sequence,
      durable: durable && changes.every(({ replicated }) => replicated),
      verifiers: last.followers,
      waitedMs: Math.round(nowMs - startedAtMs),
      ...(by ? {} : { completeBy: Math.ceil(clock.wallMs() + Math.max(0, closesAtMs - nowMs)) }),
    };
  }

  /**
   * Returns the result if it comes within `waitMs` and FENCE_WAIT_MS; undefined if it does not, or if this
   * process stops.
   */
  async #hold<T>(settling: Promise<T>, waitMs: number): Promise<T | undefined> {
    const holdMs = Math.min(waitMs, this.#options.limits.fenceWaitMs);
    if (holdMs <= 0) return undefined;
    const waiter = new Waker();
    if (this.#stop.signal.aborted) waiter.wake();
    this.#waiters.add(waiter);
    const over = waiter.pause(this.#options.clock, holdMs).then(() => undefined);
    return Promise.race([settling, over]).finally(() => {
      waiter.wake();
      this.#waiters.delete(waiter);
    });
  }
}

/** Resolves when all changes are complete. */
async function togetherBy(trackedChanges: readonly TrackedChange[]): Promise<'acks' | 'fence'> {
  const ends = await Promise.all(trackedChanges.map(({ completion }) => completion));
  return ends.includes('fence') ? 'fence' : 'acks';
}
