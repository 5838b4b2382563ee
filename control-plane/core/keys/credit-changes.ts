import { settleRun } from '#shared/metering/settle-credits.ts';
import { type Clock, pause } from '#shared/process/clock.ts';
import type { CreditsChange, LogEntry } from '#shared/protocol/log/change-log-port.ts';
import type { DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import type { StoredFields } from '#shared/protocol/records/key-record.ts';
import type { ChangeWriter, Propagation } from '#shared/protocol/writer/writer.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { hashSecret } from '#shared/rules/key-format.ts';
import type { Draw } from '../schema/draw.ts';

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
      const { isSettled, remaining } = await this.#poll(apiId, keyId);
      if (remaining === '') return undefined;
      if (isSettled === '1' || this.#clock.monotonicMs() >= untilMs) return Number(remaining);
      await pause(this.#clock, POLL_PERIOD_MS);
    }
  }

  /** Tells whether no holder still has credits that the pool lacks. */
  async isSettled(apiId: string, keyId: string): Promise<boolean> {
    return (await this.#poll(apiId, keyId)).isSettled !== '0';
  }

  async #poll(apiId: string, keyId: string) {
    return (await this.#writer.send(settleRun(apiId, keyId))).reply;
  }
}

/** A call that changes credits. */
interface CreditsCall {
  readonly draw?: Draw;
  /** A `value` of null, only with `set`, makes credits unlimited. */
  readonly request: {
    readonly op: 'set' | 'increment' | 'decrement';
    readonly value: number | null;
    readonly operationId?: string;
    readonly waitMs?: number;
  };
  /** Returns a callback that records the written change. */
  readonly recordChange: (fields: StoredFields, credits: CreditsChange) => (entry: LogEntry) => void;
}

/** Changes the credits of a key or an identity as a call says; undefined if there is no such record. Throws BAD_REQUEST. */
export async function changeCredits(
  { request, draw, recordChange }: CreditsCall,
  apiId: string,
  keyId: string,
  { credits, changeWriter }: { readonly credits: Credits; readonly changeWriter: ChangeWriter },
): Promise<{ readonly remaining: number | null; readonly propagation: Propagation } | undefined> {
  const { op, value, operationId, waitMs } = request;
  // Store only a hash, in case a caller sends a secret by mistake.
  const operation = draw ? `!${draw.name}` : operationId && hashSecret(operationId);
  const change = { ...changeOf(op, value), ...(operation === undefined ? {} : { operation }) };
  let entry: LogEntry | undefined;
  const record = recordChange({}, change);
  const propagation = await changeWriter.apply(
    { apiId, operation: 'update', keyId, fields: {}, credits: change },
    waitMs,
    (result) => {
      entry = result;
      record(result);
    },
  );
  if (!propagation || !entry) return undefined;
  const { remaining = null, isOwed = false } = entry.credits ?? {};
  if (!isOwed || propagation.state !== 'complete') return { remaining, propagation };
  return { remaining: (await credits.settle(apiId, keyId)) ?? null, propagation };
}

function changeOf(op: CreditsCall['request']['op'], value: number | null): CreditsChange {
  if (value !== null) return { op, value };
  if (op === 'set') return { op: 'none' };
  throw new ApiError('BAD_REQUEST', `value: must be a number if op is ${op}`);
}
