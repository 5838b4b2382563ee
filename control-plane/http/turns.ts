import type { App } from './server.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Lets the next call of the same root key begin: this one has written what it writes, and waits for others. */
    giveTurnBack: (() => void) | undefined;
  }
}

/** Redis does one thing at a time: more at once make no caller faster, and those of others slower. */
const TURNS_AT_ONCE = 32;

/** Works on so many calls of one root key at once, from when they are let through until they have written or are answered. */
export function takeTurns(app: App): void {
  const turns = new Turns(TURNS_AT_ONCE);
  app.decorateRequest('giveTurnBack', undefined);
  app.addHook('preHandler', async (request) => {
    if (request.caller) request.giveTurnBack = await turns.take(request.caller.rootKeyId);
  });
  // Not `onResponse`, which does not come where the client has gone.
  app.addHook('onSend', async (request, _reply, payload) => {
    request.giveTurnBack?.();
    return payload;
  });
}

/**
 * Gives each caller so many turns at once; who asks for more waits for one of its own, in order. What a flood of one caller
 * puts before Redis stays so small that the calls of others do not wait behind it.
 */
export class Turns {
  readonly #atOnce: number;
  readonly #callers = new Map<string, { taken: number; readonly waiting: (() => void)[] }>();

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /** Resolves when it is the caller's turn, with what gives the turn back; more than once has no effect. */
  async take(caller: string): Promise<() => void> {
    const known = this.#callers.get(caller) ?? { taken: 0, waiting: [] };
    this.#callers.set(caller, known);
    if (known.taken < this.#atOnce) known.taken++;
    else await new Promise<void>((resolve) => known.waiting.push(resolve));
    let isTaken = true;
    return () => {
      if (!isTaken) return;
      isTaken = false;
      const next = known.waiting.shift();
      if (next) return next();
      known.taken--;
      if (known.taken === 0) this.#callers.delete(caller);
    };
  }
}
