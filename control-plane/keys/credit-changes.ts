import { type Clock, pause } from '#shared/lang/clock.ts';
import { apiKeys, poolKey, recordKey } from '#shared/redis/redis-keys.ts';
import { Script } from '#shared/redis/script.ts';
import type { DurableWriter } from '../writer/durable-writer.ts';

const settleScript = new Script(new URL('./settle-credits.lua', import.meta.url));

/** Time that holders have to give back what a decrement took, once they know of it; milliseconds. */
const GIVEN_BACK_MS = 1000;
const POLL_PERIOD_MS = 10;

/** Ends decrements that took more credits than Redis had. */
export class Credits {
  readonly #writer: DurableWriter;
  readonly #clock: Clock;

  constructor(writer: DurableWriter, clock: Clock) {
    this.#writer = writer;
    this.#clock = clock;
  }

  /**
   * Waits until every connected verifier has given back what it held. The change must be complete. If a
   * verifier does not answer in time, the debt remains until the next change.
   * @returns credits left; undefined if the key no longer has counted credits
   */
  async settle(apiId: string, keyId: string): Promise<number | undefined> {
    const untilMs = this.#clock.monotonicMs() + GIVEN_BACK_MS;
    for (;;) {
      const [isSettled, remaining] = await this.#poll(apiId, keyId);
      if (remaining === undefined) return undefined;
      if (isSettled === '1' || this.#clock.monotonicMs() >= untilMs) return Number(remaining);
      await pause(this.#clock, POLL_PERIOD_MS);
    }
  }

  /** Tells whether no holder still has credits that the pool lacks. */
  async isSettled(apiId: string, keyId: string): Promise<boolean> {
    const [isSettled = '1'] = await this.#poll(apiId, keyId);
    return isSettled === '1';
  }

  async #poll(apiId: string, keyId: string): Promise<string[]> {
    const { members, held: heldKey } = apiKeys(apiId);
    const keys = [recordKey(apiId, keyId), members, heldKey];
    const { reply } = await this.#writer.run(settleScript, keys, [poolKey(apiId, '')]);
    return reply as string[];
  }
}
