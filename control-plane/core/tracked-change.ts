import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { backoffMs, type Clock, pause } from '#shared/lang/clock.ts';
import type { ChangeLog, Write, Written } from './change-log-port.ts';
import type { Fence, Tracked } from './fence.ts';
import { notWritten } from './not-written.ts';
import { isRefusal } from './pending-changes.ts';

const REWRITE_FIRST_MS = 50;
const REWRITE_MAX_MS = 2000;
const REWRITE_ATTEMPTS_MAX = 50;

/** A change that was asked for, and as it is in the log. */
export interface WrittenChange {
  readonly write: Write;
  readonly written: Written;
}

/** A change on its way, or several that were written together; `now` is replaced when it had to be written again. */
export interface Journey {
  /** Of several, the last one. */
  now: Tracked;
  /**
   * Settles when every change is complete, or can not be. Rejects with CONFLICT where a failover took the write of the one
   * change and another one came after it.
   */
  readonly done: Promise<'acks' | 'fence'>;
  /** Of several: those of which `done` would reject by itself, by their keys. */
  readonly failed: Map<string, ApiError>;
  /** Of several: the sequence under which each key's change is in the log by now. */
  readonly sequences: Map<string, number>;
}

/** Events of journeys, for logs and metrics. */
export interface JourneyEvents {
  /** A disable or delete that a failover took was written again, or could not be. */
  rewritten(apiId: string, keyId: string, outcome: 'written' | 'conflict' | 'given up'): void;
}

interface JourneysOptions {
  readonly log: ChangeLog;
  readonly fence: Fence;
  readonly clock: Clock;
  readonly events: JourneyEvents;
  /** From 0 to below 1 at each call: backoff. */
  readonly chance: () => number;
  readonly stop: AbortSignal;
}

/** Accompanies changes until they are complete: a refusal that a failover took is written again. */
export class Journeys {
  readonly #options: JourneysOptions;

  constructor(options: JourneysOptions) {
    this.#options = options;
  }

  /** Accompanies one change from its write on. */
  begin(change: WrittenChange): Journey {
    const { promise, resolve, reject } = Promise.withResolvers<'acks' | 'fence'>();
    promise.catch(() => undefined); // the caller may have its answer already
    const journey = journeyOf(this.#track(change), promise);
    this.#accompany(journey, change).then(resolve, reject);
    return journey;
  }

  /**
   * Accompanies changes that were written one after the other on one connection. Whoever has the last has all, so only
   * the last is watched. Where a failover took it, those before it may still be there, and each is then accompanied by
   * itself.
   */
  beginTogether(changes: readonly WrittenChange[], last: WrittenChange): Journey {
    const { promise, resolve, reject } = Promise.withResolvers<'acks' | 'fence'>();
    promise.catch(() => undefined);
    const journey = journeyOf(this.#track(last, changes.length), promise);
    for (const { write, written } of changes) journey.sequences.set(write.keyId, written.sequence);
    this.#accompanyTogether(journey, changes).then(resolve, reject);
    return journey;
  }

  async #accompany(journey: Journey, { write, written }: WrittenChange): Promise<'acks' | 'fence'> {
    for (let condition = written.previousVersion; ; ) {
      const outcome = await journey.now.settled;
      if (outcome !== 'lost') return outcome;
      if (!isRefusal(write)) throw new ApiError('CONFLICT', 'the write was lost in a failover of Redis');
      const again = await this.#writeAgain({ ...write, condition });
      journey.now = this.#track({ write, written: again });
      condition = again.previousVersion;
    }
  }

  async #accompanyTogether(journey: Journey, changes: readonly WrittenChange[]): Promise<'acks' | 'fence'> {
    const outcome = await journey.now.settled;
    if (outcome !== 'lost') return outcome;
    const alone = changes.map((change) => ({ keyId: change.write.keyId, journey: this.begin(change) }));
    let by: 'acks' | 'fence' = 'acks';
    let latest = 0;
    for (const { keyId, journey: own } of alone) {
      try {
        if ((await own.done) === 'fence') by = 'fence';
        const { now } = own;
        journey.sequences.set(keyId, now.sequence);
        if (now.sequence > latest) journey.now = now;
        latest = journey.now.sequence;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        journey.failed.set(keyId, error);
      }
    }
    return by;
  }

  #track({ write, written }: WrittenChange, changes = 1): Tracked {
    return this.#options.fence.track(write.apiId, write.keyId, written, changes);
  }

  async #writeAgain(write: Write): Promise<Written> {
    const { log, clock, events, chance, stop } = this.#options;
    for (let attempt = 0; attempt < REWRITE_ATTEMPTS_MAX && !stop.aborted; attempt++) {
      try {
        const written = await log.write(write);
        events.rewritten(write.apiId, write.keyId, written.status === 'OK' ? 'written' : 'conflict');
        if (written.status === 'OK') return written;
        if (written.status === 'TOO_OLD') throw notWritten(write, written);
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

const journeyOf = (now: Tracked, done: Journey['done']): Journey => ({
  now,
  done,
  failed: new Map(),
  sequences: new Map(),
});
