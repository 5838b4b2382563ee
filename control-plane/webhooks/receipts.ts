import { ApiError } from '#shared/contract/errors.ts';
import { backoffMs, type Clock, pause } from '#shared/lang/clock.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import type { ChangeWriter } from '../writer/writer.ts';
import type { PendingEvent } from './events-of.ts';

const FIRST_MS = 20;
const MAX_MS = 2000;

/** Waits until changes are complete. */
export class Receipts {
  readonly #changeWriter: Pick<ChangeWriter, 'status'>;
  readonly #clock: Clock;

  constructor(changeWriter: Pick<ChangeWriter, 'status'>, clock: Clock) {
    this.#changeWriter = changeWriter;
    this.#clock = clock;
  }

  /** Resolves with the receipt of a change once it is complete; undefined if the signal aborts. */
  async of(
    data: PendingEvent['data'],
    { keyId, sequence }: NonNullable<PendingEvent['change']>,
    signal: AbortSignal,
  ): Promise<object | undefined> {
    const { apiId } = data;
    const isOfApi = keyId === '' || keyId.startsWith('key_');
    const log = isOfApi && typeof apiId === 'string' ? apiId : SHARED_LOG;
    for (let looks = 0; !signal.aborted; looks++) {
      const receipt = await this.#check(log, keyId, sequence);
      if (receipt) return receipt;
      await pause(this.#clock, backoffMs(looks, FIRST_MS, MAX_MS, Math.random), signal);
    }
    return undefined;
  }

  async #check(apiId: string, keyId: string, sequence: number): Promise<object | undefined> {
    try {
      const status = await this.#changeWriter.status(apiId, keyId, sequence);
      if (status?.state !== 'complete') return undefined;
      const { durable, verifiers } = status;
      return { state: 'complete', sequence, durable, verifiers };
    } catch (error) {
      // A failover lost the change, or the log does not reach back to it.
      if (error instanceof ApiError && error.code === 'CONFLICT') return { state: 'lost', sequence };
      return undefined;
    }
  }
}
