import { endDebt } from '#shared/metering/end-debt.ts';
import { type Clock, pause } from '#shared/process/clock.ts';
import type { DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import type { Debts } from '../../core/ports.ts';

/** Time that holders have to give back what a decrement took, once they know of it; milliseconds. */
const GIVEN_BACK_MS = 1000;
const POLL_PERIOD_MS = 10;

export class OwedCredits implements Debts {
  readonly #writer: DurableWriter;
  readonly #clock: Clock;

  constructor(writer: DurableWriter, clock: Clock) {
    this.#writer = writer;
    this.#clock = clock;
  }

  async end(apiId: string, keyId: string): Promise<number | undefined> {
    const untilMs = this.#clock.monotonicMs() + GIVEN_BACK_MS;
    for (;;) {
      const { isEnded, remaining } = await this.#poll(apiId, keyId);
      if (remaining === '') return undefined;
      if (isEnded === '1' || this.#clock.monotonicMs() >= untilMs) return Number(remaining);
      await pause(this.#clock, POLL_PERIOD_MS);
    }
  }

  /** Tells whether no holder still has credits that the pool lacks. */
  async isEnded(apiId: string, keyId: string): Promise<boolean> {
    return (await this.#poll(apiId, keyId)).isEnded !== '0';
  }

  async #poll(apiId: string, keyId: string) {
    return (await this.#writer.send(endDebt(apiId, keyId))).reply;
  }
}
