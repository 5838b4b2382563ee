import { backoffMs, type Clock, pause } from '#shared/clock.ts';
import { ApiError, unavailable } from '#shared/errors.ts';
import type { ChangeLog, Write, Written } from './change-log.ts';
import type { Fence, Tracked } from './fence.ts';
import { isRefusal, PendingChanges, type PendingLimits } from './pending-changes.ts';

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

const LAGGARDS_NAMED_MAX = 100;
const REWRITE_FIRST_MS = 50;
const REWRITE_MAX_MS = 2000;
const REWRITE_ATTEMPTS_MAX = 50;

/** Limits of the waiting, and what counts as written. */
export interface PropagationLimits {
  /** The longest that a caller is held, milliseconds. */
  readonly fenceWaitMs: number;
  readonly pending: PendingLimits;
  /** True if writes must be on replicas. */
  readonly replicated: boolean;
}

/** Events of propagation, for logs and metrics. */
export interface PropagationEvents {
  /** A disable or delete that a failover took was written again, or could not be. */
  rewritten(apiId: string, keyId: string, outcome: 'written' | 'conflict' | 'given up'): void;
}

/** A change on its way; `now` is replaced when it had to be written again. */
interface Journey {
  now: Tracked;
  /** Rejects with CONFLICT when a failover took the write and another one came after it. */
  readonly done: Promise<'acks' | 'fence'>;
}

interface PropagatorOptions {
  readonly log: ChangeLog;
  readonly fence: Fence;
  readonly clock: Clock;
  readonly limits: PropagationLimits;
  readonly durable: (apiId: string) => boolean | Promise<boolean>;
  readonly events: PropagationEvents;
  /** From 0 to below 1 at each call: backoff. */
  readonly chance?: () => number;
}

/** Writes changes and holds the answer until they are complete: the one way changes reach verifiers. */
export class Propagator {
  readonly #options: PropagatorOptions;
  readonly #pending: PendingChanges;
  readonly #chance: () => number;
  readonly #stop = new AbortController();
  /**
   * Of each caller that is held, its wait. Not `AbortSignal.any` with `#stop`: Node keeps such a signal, and all that
   * listens to it, alive until it fires.
   */
  readonly #held = new Set<AbortController>();

  /** @param durable whether Redis keeps what it acknowledged of that API before this call; never rejects */
  constructor(options: PropagatorOptions) {
    this.#options = options;
    this.#pending = new PendingChanges(options.limits.pending);
    this.#chance = options.chance ?? Math.random;
  }

  /**
   * Writes a change and answers when it is complete, or after `min(waitMs, FENCE_WAIT_MS)` with `pending`.
   * @param onWritten told what was written, as soon as it is
   * @returns undefined when there is no such key or API
   * Rejects with SERVICE_UNAVAILABLE (not written, or outcome unknown) or CONFLICT.
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
    const journey = this.#accompany(
      write,
      this.#options.fence.track(write.apiId, write.keyId, written),
      written.previousVersion,
    );
    journey.done.then(ended, ended);

    const first = journey.now;
    const kept = this.#options.durable(write.apiId);
    const holdMs = Math.min(waitMs, this.#options.limits.fenceWaitMs);
    const by = holdMs > 0 ? await this.#within(journey.done, holdMs) : undefined;
    // Written again after a failover, it is on another server.
    const durable = await (journey.now === first ? kept : this.#options.durable(write.apiId));
    const { sequence, replicated, followers, closesAtMs } = journey.now;
    const nowMs = this.#options.clock.monotonicMs();
    return {
      state: by ? 'complete' : 'pending',
      ...(by ? { by } : {}),
      sequence,
      durable: replicated && durable,
      verifiers: followers,
      waitedMs: Math.round(nowMs - startedAtMs),
      ...(by
        ? {}
        : { completeBy: Math.ceil(this.#options.clock.wallMs() + Math.max(0, closesAtMs - nowMs)) }),
    };
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
    for (const waited of this.#held) waited.abort();
    this.#options.fence.stop();
  }

  /** undefined when there is no such key or API. Tells `ended` where nothing was written that is under way now. */
  async #write(write: Write, ended: () => void): Promise<Written | undefined> {
    try {
      const written = await this.#options.log.write(write);
      if (written.status === 'OK') return written;
      if (written.status === 'CONFLICT') throw new ApiError('CONFLICT', 'another write came first');
      ended();
      return undefined;
    } catch (error) {
      ended();
      throw error;
    }
  }

  /** The result, if it comes within `holdMs`; undefined if it does not, or this process stops. */
  async #within<T>(settling: Promise<T>, holdMs: number): Promise<T | undefined> {
    const waited = new AbortController();
    if (this.#stop.signal.aborted) waited.abort();
    this.#held.add(waited);
    const over = pause(this.#options.clock, holdMs, waited.signal).then(() => undefined);
    return Promise.race([settling, over]).finally(() => {
      waited.abort();
      this.#held.delete(waited);
    });
  }

  #accompany(write: Write, tracked: Tracked, previousVersion: string): Journey {
    const { promise, resolve, reject } = Promise.withResolvers<'acks' | 'fence'>();
    const journey: Journey = { now: tracked, done: promise };
    promise.catch(() => undefined); // the caller may have its answer already
    const go = async () => {
      for (let condition = previousVersion; ; ) {
        const outcome = await journey.now.settled;
        if (outcome !== 'lost') return resolve(outcome);
        if (!isRefusal(write)) throw new ApiError('CONFLICT', 'the write was lost in a failover of Redis');
        const again = await this.#writeAgain({ ...write, condition });
        journey.now = this.#options.fence.track(write.apiId, write.keyId, again);
        condition = again.previousVersion;
      }
    };
    go().catch(reject);
    return journey;
  }

  async #writeAgain(write: Write) {
    for (let attempt = 0; attempt < REWRITE_ATTEMPTS_MAX && !this.#stop.signal.aborted; attempt++) {
      try {
        const written = await this.#options.log.write(write);
        this.#options.events.rewritten(
          write.apiId,
          write.keyId,
          written.status === 'OK' ? 'written' : 'conflict',
        );
        if (written.status === 'OK') return written;
        throw new ApiError('CONFLICT', 'the write was lost in a failover of Redis and overtaken by another');
      } catch (error) {
        if (!(error instanceof ApiError) || error.code !== 'SERVICE_UNAVAILABLE') throw error;
        await pause(
          this.#options.clock,
          backoffMs(attempt, REWRITE_FIRST_MS, REWRITE_MAX_MS, this.#chance),
          this.#stop.signal,
        );
      }
    }
    this.#options.events.rewritten(write.apiId, write.keyId, 'given up');
    throw unavailable('the write was lost in a failover of Redis and could not be written again');
  }
}
