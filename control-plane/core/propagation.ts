import { ApiError } from '#shared/contract/errors.ts';
import { type Clock, Waker } from '#shared/lang/clock.ts';
import { type BatchEvents, Batches, type BatchLimits, halfWritten } from './batches.ts';
import type { BatchedChangeLog, Write, Written } from './change-log-port.ts';
import type { Fence } from './fence.ts';
import { notWritten } from './not-written.ts';
import { PendingChanges, type PendingLimits } from './pending-changes.ts';
import { type Journey, type JourneyEvents, Journeys } from './tracked-change.ts';

/** Progress of a change, as updateKey answers it. */
export interface Propagation {
  readonly state: 'complete' | 'pending';
  /** `acks`: every registered verifier has applied it. `fence`: those that had not can no longer answer. */
  readonly by?: 'acks' | 'fence';
  readonly sequence: number;
  /**
   * True if the write survives what the configuration promises (fsync; all replicas), by a look at its server that began
   * after the write.
   */
  readonly durable: boolean;
  /** Followers registered for the API, as of the last look. */
  readonly verifiers: number;
  readonly waitedMs: number;
  /** Pending only: when it will be complete at the latest if Redis stays in reach, Unix milliseconds. */
  readonly completeBy?: number;
}

/** A change looked at later: with the followers that have not acknowledged it, the first 100 of them. */
export interface ChangeStatus extends Propagation {
  readonly laggards?: readonly string[];
}

/** Outcome for one of many changes. */
export type Applied =
  | { readonly keyId: string; readonly sequence: number }
  | { readonly keyId: string; readonly failure: ApiError };

const LAGGARDS_NAMED_MAX = 100;

/** Limits of the waiting, and what counts as written. */
export interface PropagationLimits {
  /** The longest that a caller is held, milliseconds. */
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
  readonly events: JourneyEvents;
  /** From 0 to below 1 at each call: backoff. */
  readonly chance?: () => number;
}

/** Writes changes and holds the answer until they are complete: the one way changes reach verifiers. */
export class Propagator {
  readonly #options: PropagatorOptions;
  readonly #pending: PendingChanges;
  readonly #journeys: Journeys;
  readonly #batches: Batches;
  readonly #stop = new AbortController();
  /** Of each caller that is held, its wait. */
  readonly #held = new Set<Waker>();

  /** @param durable whether Redis keeps what it acknowledged of that API before this call; never rejects */
  constructor(options: PropagatorOptions) {
    this.#options = options;
    this.#pending = new PendingChanges(options.limits.pending);
    const { log, fence, clock, events, chance = Math.random } = options;
    const stop = this.#stop.signal;
    this.#journeys = new Journeys({ log, fence, clock, events, chance, stop });
    const limits = { ...options.limits.batch, lagWaitMs: options.limits.fenceWaitMs };
    this.#batches = new Batches({ log, clock, limits, journeys: this.#journeys, stop });
  }

  /**
   * Writes a change and answers when it is complete, or after `min(waitMs, FENCE_WAIT_MS)` with `pending`.
   * @param onWritten told what was written, as soon as it is
   * @returns undefined when there is no such key or API
   * Rejects with SERVICE_UNAVAILABLE (not written, or outcome unknown), CONFLICT or VERIFIERS_TOO_OLD.
   */
  async apply(
    write: Write,
    waitMs = Number.POSITIVE_INFINITY,
    onWritten?: (written: Written) => void,
  ): Promise<Propagation | undefined> {
    const ended = this.#pending.begin(write);
    const startedAtMs = this.#options.clock.monotonicMs();
    const written = await this.#write(write, ended);
    if (!written) return undefined;
    onWritten?.(written);
    const journey = this.#journeys.begin({ write, written });
    journey.done.then(ended, ended);

    const first = journey.now;
    const kept = this.#options.durable(write.apiId);
    const by = await this.#hold(journey.done, waitMs);
    // Written again after a failover, it is on another server.
    const durable = await (journey.now === first ? kept : this.#options.durable(write.apiId));
    return this.#answer([journey], by, durable, startedAtMs);
  }

  /**
   * Writes changes of one API, of a key each, and answers once: when all are complete, with the propagation of the last, and
   * with what became of each.
   * @returns without `propagation` where nothing was changed
   * Rejects with SERVICE_UNAVAILABLE, and then any of them may have been written.
   */
  async applyAll(
    writes: readonly [Write, ...Write[]],
    waitMs = Number.POSITIVE_INFINITY,
    events: BatchEvents = {},
  ): Promise<{ readonly applied: readonly Applied[]; readonly propagation?: Propagation }> {
    const [{ apiId }] = writes;
    const ended = this.#pending.begin(writes[0], writes.length);
    const startedAtMs = this.#options.clock.monotonicMs();
    const journeys: Journey[] = [];
    let refused: ReadonlyMap<string, ApiError>;
    try {
      refused = await this.#batches.write(writes, journeys, events);
    } catch (error) {
      throw halfWritten(error);
    } finally {
      void Promise.allSettled(journeys.map(({ done }) => done)).then(ended);
    }
    const firsts = journeys.map(({ now }) => now);
    const kept = this.#options.durable(apiId);
    const done = togetherBy(journeys);
    done.catch(() => undefined); // the caller may have its answer already
    const by = await this.#hold(done, waitMs);
    const isAsWritten = journeys.every(({ now }, i) => now === firsts[i]);
    const durable = await (isAsWritten ? kept : this.#options.durable(apiId));
    const applied = writes.map(({ keyId }) => {
      const journey = journeys.find(({ sequences }) => sequences.has(keyId));
      const failure = refused.get(keyId) ?? journey?.failed.get(keyId);
      return failure ? { keyId, failure } : { keyId, sequence: journey?.sequences.get(keyId) ?? 0 };
    });
    if (!applied.some((outcome) => 'sequence' in outcome)) return { applied };
    return { applied, propagation: this.#answer(journeys, by, durable, startedAtMs) };
  }

  /** Tells how much of its time a call has left that waits more than once, milliseconds; undefined = it set no limit. */
  timeLeft(waitMs: number | undefined): () => number | undefined {
    const { clock } = this.#options;
    if (waitMs === undefined) return () => undefined;
    const endsAtMs = clock.monotonicMs() + waitMs;
    return () => Math.max(0, endsAtMs - clock.monotonicMs());
  }

  /**
   * Status of an earlier change, whichever control plane wrote it.
   * @param isLatest whether the key's record says that this is its latest change, so that it is there for certain
   * @returns undefined when the key never had one; rejects with CONFLICT when a failover took it, or may have
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

  /** Answers every held call with `pending`; what is on its way goes on at other control planes' sweeps. */
  stop(): void {
    this.#stop.abort();
    for (const waited of this.#held) waited.wake();
    this.#options.fence.stop();
  }

  /** undefined when there is no such key or API. Tells `ended` where nothing was written that is under way now. */
  async #write(write: Write, ended: () => void): Promise<Written | undefined> {
    try {
      const written = await this.#options.log.write(write);
      if (written.status === 'OK') return written;
      if (written.status !== 'NOT_FOUND') throw notWritten(write, written);
      ended();
      return undefined;
    } catch (error) {
      ended();
      throw error;
    }
  }

  /** @param by how all became complete; undefined = they are not, or not all of them */
  #answer(
    journeys: readonly Journey[],
    by: 'acks' | 'fence' | undefined,
    durable: boolean,
    startedAtMs: number,
  ): Propagation {
    const { clock } = this.#options;
    const changes = journeys.map(({ now }) => now);
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
   * The result, if it comes within `waitMs` and FENCE_WAIT_MS; undefined if it does not, or this process stops.
   */
  async #hold<T>(settling: Promise<T>, waitMs: number): Promise<T | undefined> {
    const holdMs = Math.min(waitMs, this.#options.limits.fenceWaitMs);
    if (holdMs <= 0) return undefined;
    const waited = new Waker();
    if (this.#stop.signal.aborted) waited.wake();
    this.#held.add(waited);
    const over = waited.pause(this.#options.clock, holdMs).then(() => undefined);
    return Promise.race([settling, over]).finally(() => {
      waited.wake();
      this.#held.delete(waited);
    });
  }
}

/** Resolves when all of several changes are complete. */
async function togetherBy(journeys: readonly Journey[]): Promise<'acks' | 'fence'> {
  const ends = await Promise.all(journeys.map(({ done }) => done));
  return ends.includes('fence') ? 'fence' : 'acks';
}
