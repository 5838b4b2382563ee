import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { type Clock, pause, Waker } from '#shared/lang/clock.ts';
import type { BatchedChangeLog, Write } from './change-log-port.ts';
import type { ChangeTracker, TrackedChange, WrittenChange } from './tracked-change.ts';
import { writeError } from './write-error.ts';

/** The pace of a batch, so that it keeps nobody else waiting. */
export interface BatchLimits {
  /** Changes written in one go. */
  readonly partMax: number;
  /** A part of an API begins no sooner than this after the one before, milliseconds: the machine has time for others. */
  readonly periodMs: number;
  /** The longest wait after them for followers to catch up, milliseconds: other changes come in between. */
  readonly giveWayMs: number;
  /** A live follower that is behind by more changes is waited for, or the log would no longer reach back to it. */
  readonly lagMax: number;
  /** The longest wait for such a follower, milliseconds. It ends when a fence kills it. */
  readonly lagWaitMs: number;
}

/** Told of each part what became of it, as soon as it is known. */
export interface BatchEvents {
  onWritten?(changes: readonly WrittenChange[]): void;
  /** The write failed, and any of them may be in the log. */
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
 * Writes many changes of an API, part after part. Those of one API stand in line, whichever call they are of, so that no more
 * than one part is before what others write.
 */
export class Batches {
  readonly #options: BatchesOptions;
  /** Of each API that has a line: its end, and whether every follower has applied what was written before it. */
  readonly #lines = new Map<string, Promise<boolean>>();

  constructor(options: BatchesOptions) {
    this.#options = options;
  }

  /**
   * Writes changes of one API, of a key each.
   * @param trackedChanges takes up those that begin, also where it rejects
   * @returns why keys were not changed, by their ids
   * Rejects with SERVICE_UNAVAILABLE, and then any of them may have been written.
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

  /** Waits until every live follower would still find its place in the log after one more part. */
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

  /** The next in line comes when this is done, its period is over, and followers have caught up or time is up. */
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

  /** Waits until every follower has applied a part, or time is up; whether they have. */
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

/** The outcome of a batch that failed halfway, for its caller. */
export function partialWriteError(error: unknown): unknown {
  if (!(error instanceof ApiError) || error.code !== 'SERVICE_UNAVAILABLE') return error;
  return unavailable(`${error.message}; any of the keys may have been changed: send the call again`, error);
}
