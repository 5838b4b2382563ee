import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { type Clock, pause, Waker } from '#shared/lang/clock.ts';
import type { BatchedChangeLog, Write } from './change-log-port.ts';
import type { ChangeTracker, TrackedChange, WrittenChange } from './tracked-change.ts';
import { writeError } from './write-error.ts';

/** The pace of a batch, so that other callers need not wait for it. */
export interface BatchLimits {
  /** Maximum number of changes written together. */
  readonly partMax: number;
  /** Minimum time between the starts of two parts of an API, milliseconds: leaves time for other work. */
  readonly periodMs: number;
  /** Maximum wait after a part for followers to catch up, milliseconds: lets other changes in between. */
  readonly giveWayMs: number;
  /**
   * Number of changes by which a live follower may be behind before the batch waits for it, so that the log
   * still reaches back to it.
   */
  readonly lagMax: number;
  /** Maximum wait for such a follower, milliseconds. The wait ends when a fence kills the follower. */
  readonly lagWaitMs: number;
}

/** Callbacks that report the outcome of each part as soon as it is known. */
export interface BatchEvents {
  onWritten?(changes: readonly WrittenChange[]): void;
  /** The write failed, so any of its changes may be in the log. */
  onUnknown?(writes: readonly Write[]): void;
  /** The last part is written. */
  onEnd?(): void;
}

const LAG_PERIOD_MS = 50;

interface BatchesOptions {
  readonly log: BatchedChangeLog;
  readonly clock: Clock;
  readonly limits: BatchLimits;
  readonly tracker: ChangeTracker;
  readonly stop: AbortSignal;
}

/**
 * Writes many changes of an API, part after part. The batches of one API share a queue, whichever call they
 * belong to, so that a single write waits for at most one part.
 */
export class Batches {
  readonly #options: BatchesOptions;
  /**
   * The end of each API's queue; resolves to whether every follower has applied everything written before it.
   */
  readonly #lines = new Map<string, Promise<boolean>>();

  constructor(options: BatchesOptions) {
    this.#options = options;
  }

  /**
   * Writes changes of one API, each to a different key.
   * @param trackedChanges receives the changes that begin, even if this rejects
   * @returns the reasons why keys were not changed, by their ids. Rejects with SERVICE_UNAVAILABLE; then any
   * of the changes may have been written.
   */
  async write(
    writes: readonly Write[],
    trackedChanges: TrackedChange[],
    events: BatchEvents,
  ): Promise<ReadonlyMap<string, ApiError>> {
    const { partMax } = this.#options.limits;
    const refusals = new Map<string, ApiError>();
    for (let at = 0; at < writes.length; at += partMax) {
      const part = writes.slice(at, at + partMax);
      const outcome = await this.#queue(part[0]?.apiId ?? '', (caughtUp) =>
        this.#writePart(part, events, caughtUp),
      );
      if (outcome.trackedChange) trackedChanges.push(outcome.trackedChange);
      for (const [keyId, error] of outcome.refusals) refusals.set(keyId, error);
    }
    events.onEnd?.();
    return refusals;
  }

  async #writePart(writes: readonly Write[], events: BatchEvents, caughtUp: boolean) {
    if (!caughtUp) await this.#room(writes[0]?.apiId ?? '');
    const outcomes = await this.#options.log.writeAll(writes).catch((error: unknown) => {
      events.onUnknown?.(writes);
      throw error;
    });
    const changes: WrittenChange[] = [];
    const refusals: [keyId: string, error: ApiError][] = [];
    for (const [i, write] of writes.entries()) {
      const result = outcomes[i];
      if (result?.status === 'OK') changes.push({ write, entry: result });
      else refusals.push([write.keyId, writeError(write, result ?? { status: 'NOT_FOUND' })]);
    }
    events.onWritten?.(changes);
    const last = changes.at(-1);
    return { trackedChange: last && this.#options.tracker.beginTogether(changes, last), refusals };
  }

  /** Waits until one more part would not push any live follower's place out of the log. */
  async #room(apiId: string): Promise<void> {
    const { log, clock, limits, stop } = this.#options;
    const startedAtMs = clock.monotonicMs();
    for (;;) {
      const lag = await log.lag(apiId);
      if (lag <= limits.lagMax) return;
      if (stop.aborted) throw unavailable('shutting down');
      if (clock.monotonicMs() - startedAtMs >= limits.lagWaitMs) {
        throw unavailable(`a verifier is behind by ${lag} changes of api ${apiId}`);
      }
      await pause(clock, LAG_PERIOD_MS, stop);
    }
  }

  /**
   * Runs `work` in turn. The next turn begins when this one is done, its period is over, and followers have
   * caught up or the wait has timed out.
   */
  async #queue<T extends { readonly trackedChange: TrackedChange | undefined }>(
    apiId: string,
    work: (caughtUp: boolean) => Promise<T>,
  ): Promise<T> {
    const before = this.#lines.get(apiId) ?? Promise.resolve(false);
    const turn = before.then(work);
    const over = Promise.all([
      turn.then(({ trackedChange }) => this.#giveWay(trackedChange)),
      before.then(() => this.#period()),
    ]).then(
      ([caughtUp]) => caughtUp,
      () => false,
    );
    this.#lines.set(apiId, over);
    void over.then(() => this.#lines.get(apiId) === over && this.#lines.delete(apiId));
    return turn;
  }

  async #period(): Promise<void> {
    const { clock, limits, stop } = this.#options;
    if (limits.periodMs > 0) await pause(clock, limits.periodMs, stop);
  }

  /** Waits until every follower has applied a part or the wait times out; returns whether they have. */
  async #giveWay(trackedChange: TrackedChange | undefined): Promise<boolean> {
    if (!trackedChange) return false;
    const { clock, limits } = this.#options;
    const waker = new Waker();
    let isOver = false;
    const end = () => {
      isOver = true;
      waker.wake();
    };
    trackedChange.completion.then(end, end);
    await waker.pause(clock, limits.giveWayMs);
    return isOver;
  }
}

/** The error that the caller of a batch gets if it failed halfway. */
export function partialWriteError(error: unknown): unknown {
  if (!(error instanceof ApiError) || error.code !== 'SERVICE_UNAVAILABLE') return error;
  return unavailable(`${error.message}; any of the keys may have been changed: send the call again`, error);
}
