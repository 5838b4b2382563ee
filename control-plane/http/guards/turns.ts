import { ApiError, RETRY_AFTER_SECONDS } from '#shared/contract/errors.ts';
import type { App } from '../server.ts';

/** Limits on the calls of one root key. */
interface TurnLimits {
  readonly atOnce: number;
  readonly waitingMax: number;
}

/**
 * Runs at most `atOnce` calls of one root key at the same time. A call counts until it is answered, or has
 * written and only waits for verifiers. Redis does one thing at a time, so more concurrent calls would speed
 * up no caller and slow down others.
 * @param onRefusal is called for each call that finds the queue full and is answered RATE_LIMITED
 */
export function takeTurns(app: App, limits: TurnLimits, onRefusal: () => void): void {
  const turns = new Turns(limits);
  app.addHook('preHandler', async ({ call }, reply) => {
    if (!call) return;
    const turn = turns.take(call.caller.rootKeyId);
    if (turn === undefined) {
      onRefusal();
      reply.header('retry-after', String(RETRY_AFTER_SECONDS));
      throw new ApiError('RATE_LIMITED', `more than ${limits.waitingMax} calls of this root key are waiting`);
    }
    call.turn = await turn;
  });
  // `onResponse` would not fire for a client that has gone.
  app.addHook('onSend', ({ call }, _reply, payload, done) => {
    call?.giveTurnBack();
    done(null, payload);
  });
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
