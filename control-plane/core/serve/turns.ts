import { ApiError, unavailable } from '#shared/rules/errors.ts';

/** Limits on the calls of one caller. */
export interface TurnLimits {
  readonly atOnce: number;
  readonly waitingMax: number;
}

/**
 * Bounds how many calls of one caller run at the same time; further calls wait in order. So a flood from one
 * caller sends little to Redis, and other callers do not wait behind it.
 */
export class Turns {
  readonly #limits: TurnLimits;
  readonly #callers = new Map<string, { running: number; readonly waiting: (() => void)[] }>();

  constructor(limits: TurnLimits) {
    this.#limits = limits;
  }

  /** The maximum number of calls of one caller that wait. */
  get waitingMax(): number {
    return this.#limits.waitingMax;
  }

  /**
   * Resolves when it is the caller's turn, to a function that ends the turn; calling it again has no effect.
   * @returns undefined if too many calls of the caller are waiting
   */
  take(caller: string): Promise<() => void> | undefined {
    const line = this.#callers.get(caller) ?? { running: 0, waiting: [] };
    if (line.running < this.#limits.atOnce) {
      this.#callers.set(caller, line);
      line.running++;
      return Promise.resolve(this.#giveBack(caller, line));
    }
    if (line.waiting.length >= this.#limits.waitingMax) return undefined;
    return new Promise((resolve) => line.waiting.push(() => resolve(this.#giveBack(caller, line))));
  }

  /** Returns a function that ends one turn and starts that of the call that has waited longest. */
  #giveBack(caller: string, line: { running: number; readonly waiting: (() => void)[] }): () => void {
    let isTaken = true;
    return () => {
      if (!isTaken) return;
      isTaken = false;
      const next = line.waiting.shift();
      if (next) return next();
      line.running--;
      if (line.running === 0) this.#callers.delete(caller);
    };
  }
}

/** Costly calls: of each caller one runs at a time and few wait, and of all callers few run. */
const COSTLY = {
  ofCaller: { atOnce: 1, waitingMax: 32 },
  ofAll: { atOnce: 2, waitingMax: 100 },
};

/**
 * Runs the reads that cost Redis and this process much, a few at a time. A caller who asks for many waits for its own
 * ones; another caller waits at most for one of each caller before it.
 */
export class CostlyReads {
  readonly #ofCaller = new Turns(COSTLY.ofCaller);
  readonly #ofAll = new Turns(COSTLY.ofAll);

  /** Resolves as `read` does. Rejects with RATE_LIMITED or SERVICE_UNAVAILABLE if too many reads are waiting. */
  async run<T>(caller: string, read: () => Promise<T>): Promise<T> {
    const endOwn = await this.#ofCaller.take(caller);
    if (!endOwn)
      throw new ApiError(
        'RATE_LIMITED',
        `more than ${COSTLY.ofCaller.waitingMax} costly reads of this caller are waiting; send one after the other`,
      );
    try {
      const end = await this.#ofAll.take('');
      if (!end) throw unavailable('too many costly reads are waiting; try again');
      try {
        return await read();
      } finally {
        end();
      }
    } finally {
      endOwn();
    }
  }
}
