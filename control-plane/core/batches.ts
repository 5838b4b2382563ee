import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { type Clock, pause, Waker } from '#shared/lang/clock.ts';
import type { BatchedChangeLog, Write } from './change-log-port.ts';
import { notWritten } from './not-written.ts';
import type { Journey, Journeys, WrittenChange } from './tracked-change.ts';

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
  written?(changes: readonly WrittenChange[]): void;
  /** The write failed, and any of them may be in the log. */
  unknown?(writes: readonly Write[]): void;
  /** The last part is written. */
  allWritten?(): void;
}

const LAG_PERIOD_MS = 50;

interface BatchesOptions {
  readonly log: BatchedChangeLog;
  readonly clock: Clock;
  readonly limits: BatchLimits;
  readonly journeys: Journeys;
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
   * @param journeys takes up those that begin, also where it rejects
   * @returns why keys were not changed, by their ids
   * Rejects with SERVICE_UNAVAILABLE, and then any of them may have been written.
   */
  async write(
    writes: readonly Write[],
    journeys: Journey[],
    events: BatchEvents,
  ): Promise<ReadonlyMap<string, ApiError>> {
    const { partMax } = this.#options.limits;
    const refused = new Map<string, ApiError>();
    for (let at = 0; at < writes.length; at += partMax) {
      const part = writes.slice(at, at + partMax);
      const written = await this.#inLine(part[0]?.apiId ?? '', (caughtUp) =>
        this.#writePart(part, events, caughtUp),
      );
      if (written.journey) journeys.push(written.journey);
      for (const [keyId, error] of written.refused) refused.set(keyId, error);
    }
    events.allWritten?.();
    return refused;
  }

  async #writePart(writes: readonly Write[], events: BatchEvents, caughtUp: boolean) {
    if (!caughtUp) await this.#room(writes[0]?.apiId ?? '');
    const outcomes = await this.#options.log.writeAll(writes).catch((error: unknown) => {
      events.unknown?.(writes);
      throw error;
    });
    const changes: WrittenChange[] = [];
    const refused: [keyId: string, error: ApiError][] = [];
    for (const [i, write] of writes.entries()) {
      const written = outcomes[i];
      if (written?.status === 'OK') changes.push({ write, written });
      else refused.push([write.keyId, notWritten(write, written ?? { status: 'NOT_FOUND' })]);
    }
    events.written?.(changes);
    const last = changes.at(-1);
    return { journey: last && this.#options.journeys.beginTogether(changes, last), refused };
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
  async #inLine<T extends { readonly journey: Journey | undefined }>(
    apiId: string,
    work: (caughtUp: boolean) => Promise<T>,
  ): Promise<T> {
    const before = this.#lines.get(apiId) ?? Promise.resolve(false);
    const mine = before.then(work);
    const over = Promise.all([
      mine.then(({ journey }) => this.#giveWay(journey)),
      before.then(() => this.#period()),
    ]).then(
      ([caughtUp]) => caughtUp,
      () => false,
    );
    this.#lines.set(apiId, over);
    void over.then(() => this.#lines.get(apiId) === over && this.#lines.delete(apiId));
    return mine;
  }

  async #period(): Promise<void> {
    const { clock, limits, stop } = this.#options;
    if (limits.periodMs > 0) await pause(clock, limits.periodMs, stop);
  }

  /** Waits until every follower has applied a part, or time is up; whether they have. */
  async #giveWay(journey: Journey | undefined): Promise<boolean> {
    if (!journey) return false;
    const { clock, limits } = this.#options;
    const waker = new Waker();
    let isOver = false;
    const end = () => {
      isOver = true;
      waker.wake();
    };
    journey.done.then(end, end);
    await waker.pause(clock, limits.giveWayMs);
    return isOver;
  }
}

/** The outcome of a batch that failed halfway, for its caller. */
export function halfWritten(error: unknown): unknown {
  if (!(error instanceof ApiError) || error.code !== 'SERVICE_UNAVAILABLE') return error;
  return unavailable(`${error.message}; any of the keys may have been changed: send the call again`, error);
}
