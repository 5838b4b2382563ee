import type { CreditsChange, LogEntry } from '#shared/protocol/log/change-log-port.ts';
import type { StoredFields } from '#shared/protocol/records/key-record.ts';
import type { ChangeWriter, Propagation } from '#shared/protocol/writer/writer.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { hashSecret } from '#shared/rules/key-format.ts';
import type { Debts, Draw } from '../ports.ts';

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
  { debts, changeWriter }: { readonly debts: Debts; readonly changeWriter: ChangeWriter },
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
  return { remaining: (await debts.end(apiId, keyId)) ?? null, propagation };
}

function changeOf(op: CreditsCall['request']['op'], value: number | null): CreditsChange {
  if (value !== null) return { op, value };
  if (op === 'set') return { op: 'none' };
  throw new ApiError('BAD_REQUEST', `value: must be a number if op is ${op}`);
}
