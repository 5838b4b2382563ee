import type { Clock } from '#shared/process/clock.ts';
import type { TooOld } from '#shared/protocol/log/change-log-port.ts';
import type { DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import {
  type Created,
  deletePointer,
  type NewRecord,
  recordRun,
  setPointer,
} from '#shared/protocol/log/new-key-record.ts';
import { formatPointer, idPointer, parsePointer, secretPointer } from '#shared/redis/redis-keys.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { generateId } from '#shared/rules/key-format.ts';
import type { Keys } from './keys.ts';

/** A key that was made elsewhere: the hash of its secret, and the rest of its record. */
export type KeyToImport = Omit<NewRecord, 'apiId' | 'keyId' | 'createdAt'>;

/**
 * Outcome for one key; `TAKEN` = the secret belongs to a key of another API, `TOO_OLD` = some verifiers are
 * too old for it, `TOO_LONG` = it would live longer than its API allows.
 */
export type ImportOutcome =
  | { readonly result: 'created' | 'exists'; readonly keyId: string }
  | { readonly result: 'TAKEN' }
  | { readonly result: 'TOO_OLD'; readonly refusal: TooOld }
  | { readonly result: 'TOO_LONG'; readonly longestMs: number };

interface KeyImportOptions {
  readonly writer: DurableWriter;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly limits: { readonly leaseMs: number; readonly apiAutoCreate: boolean };
}

/** Imports keys that were made elsewhere, of which only the hash of the secret is known. */
export class KeyImport {
  readonly #options: KeyImportOptions;

  constructor(options: KeyImportOptions) {
    this.#options = options;
  }

  /**
   * Creates the keys that do not exist yet, in a few round trips for all together, and returns an outcome for
   * each. The call can be repeated: an existing secret keeps its key, and a half-made import is finished.
   * Rejects with NOT_FOUND (no such API, and none is created) or CONFLICT (the API is being deleted), in
   * which case nothing was created, or with SERVICE_UNAVAILABLE, in which case any part may have been
   * created.
   */
  async run(apiId: string, keys: readonly KeyToImport[]): Promise<ImportOutcome[]> {
    const nowMs = this.#options.clock.wallMs();
    const newIds = keys.map(() => generateId('key', nowMs));
    const pointers = await this.#point(
      keys.map(({ secretHash }, i) => [secretPointer(secretHash), formatPointer(apiId, newIds[i] ?? '')]),
    );
    const records = keys.flatMap((key, i): NewRecord[] => {
      const place = parsePointer(pointers[i] ?? '');
      return place.apiId === apiId ? [{ ...key, apiId, keyId: place.keyId, createdAt: nowMs }] : [];
    });
    await this.#point(records.map(({ keyId }) => [idPointer(keyId), apiId]));
    const replies = await this.#createRecords(apiId, records);
    const statuses = replies.map(({ status }) => status);

    const ownIds = new Set(newIds);
    const isOurs = ({ keyId }: NewRecord) => ownIds.has(keyId);
    const apiRefusal = statuses.find((status) => status === 'NO_API' || status === 'DELETED');
    if (apiRefusal !== undefined) {
      await this.#forget(records.filter(isOurs));
      if (apiRefusal === 'NO_API') throw new ApiError('NOT_FOUND', `api ${apiId} not found`);
      throw new ApiError('CONFLICT', `api ${apiId} is being deleted`);
    }
    const outcomes = records.map((record, i): ImportOutcome => {
      const reply = replies[i];
      if (reply?.status === 'TOO_OLD') return { result: 'TOO_OLD', refusal: reply };
      if (reply?.status === 'TOO_LONG') return { result: 'TOO_LONG', longestMs: reply.longestMs };
      return { result: statuses[i] === 'OK' ? 'created' : 'exists', keyId: record.keyId };
    });
    const isRefused = (i: number) => outcomes[i] !== undefined && !('keyId' in outcomes[i]);
    await this.#forget(records.filter((record, i) => isRefused(i) && isOurs(record)));
    // Existing pointers without a record may belong to a key that is being deleted, and vanish with it.
    const completions = records.filter(({ keyId }, i) => statuses[i] === 'OK' && !ownIds.has(keyId));
    await this.#point(completions.flatMap(pointersOf));

    let n = 0;
    return pointers.map((pointer) => {
      const isOfThisApi = parsePointer(pointer).apiId === apiId;
      return (isOfThisApi && outcomes[n++]) || { result: 'TAKEN' };
    });
  }

  /** @returns the value that each pointer now holds */
  async #point(pointers: readonly (readonly [pointer: string, value: string])[]): Promise<string[]> {
    const runs = pointers.map(([pointer, value]) => setPointer({ pointer, value }));
    const { replies, replicated } = await this.#options.writer.sendAll(runs);
    if (!replicated) throw unavailable('not all replicas confirmed; send it again');
    return replies;
  }

  async #createRecords(apiId: string, records: readonly NewRecord[]): Promise<Created[]> {
    const create = async (createApi: boolean) => {
      const runs = records.map((record) => recordRun(record, createApi, this.#options.limits.leaseMs));
      const { replies, replicated } = await this.#options.writer.sendAll(runs);
      if (!replicated) throw unavailable('not all replicas confirmed; send it again');
      return replies;
    };
    const replies = await create(false);
    if (!this.#options.limits.apiAutoCreate || !replies.some(({ status }) => status === 'NO_API'))
      return replies;
    await this.#options.keys.listApi(apiId);
    return create(true);
  }

  /** Removes the pointers of keys that could not be created. */
  async #forget(records: readonly NewRecord[]): Promise<void> {
    const pointers = records.flatMap(pointersOf);
    await this.#options.writer.sendAll(pointers.map(([pointer, value]) => deletePointer({ pointer, value })));
  }
}

function pointersOf({ apiId, keyId, secretHash }: NewRecord): [pointer: string, value: string][] {
  return [
    [secretPointer(secretHash), formatPointer(apiId, keyId)],
    [idPointer(keyId), apiId],
  ];
}
