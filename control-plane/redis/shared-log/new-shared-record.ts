import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { generateId, hashSecret } from '#shared/contract/key-format.ts';
import type { Clock } from '#shared/lang/clock.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { identityIndexKey, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import type { ChangeLog } from '../../core/change-log-port.ts';
import { tooOldError } from '../../core/write-error.ts';
import { createSharedLog } from '../apis.ts';
import { tooOldOf } from '../change-log.ts';
import type { DurableWriter } from '../durable-writer.ts';
import { createScript, type NewFields, neededForNew, recordCall } from '../keys/new-key-record.ts';

/** Parts that records of the shared log are made with. */
export interface RecordParts {
  readonly nodes: RedisNodes;
  readonly writer: DurableWriter;
  readonly log: ChangeLog;
  readonly clock: Clock;
  readonly leaseMs: number;
}

/** A record that is to be made: a role or a permission. */
interface NewRecord {
  readonly kind: 'role' | 'permission';
  /** Its name in the index of external ids, which no other record has. */
  readonly uniqueName: string;
  readonly fields: Omit<NewFields, 'externalId'>;
  /** The words for one of the kind, and for many, in messages. */
  readonly nouns: { readonly singular: string; readonly plural: string };
  /** The index that it is in, and how many there may be. */
  readonly room: { readonly index: string; readonly max: number };
}

/**
 * Creates a record of the shared log, of the form that keys have, which no secret leads to; its id.
 * Rejects with `conflict` where there is one of that name, CONFLICT where there is no room, VERIFIERS_TOO_OLD or SERVICE_UNAVAILABLE.
 */
export async function createRecord(
  { nodes, writer, log, clock, leaseMs }: RecordParts,
  { kind, uniqueName, fields, nouns, room }: NewRecord,
  conflict: () => ApiError,
): Promise<string> {
  const full = () => new ApiError('CONFLICT', `there are ${room.max} ${nouns.plural} already`);
  if ((await nodes.run(room.index, (redis) => redis.zcard(room.index))) >= room.max) throw full();
  if ((await recordOf(nodes, uniqueName)) !== undefined) throw conflict();
  const createdAt = clock.wallMs();
  const keyId = generateId(kind, createdAt);
  const record = {
    ...{ apiId: SHARED_LOG, keyId, secretHash: hashSecret(keyId), start: '', createdAt, foreign: false },
    ...{ ...fields, externalId: uniqueName },
  };
  const { keys, args } = recordCall(record, false, leaseMs);
  let { reply, replicated } = await writer.run(createScript, keys, args);
  if (reply === 'NO_API') {
    await createSharedLog(writer, clock.wallMs(), leaseMs);
    ({ reply, replicated } = await writer.run(createScript, keys, args));
  }
  const refusal = tooOldOf(reply, neededForNew(record));
  if (refusal) throw tooOldError(SHARED_LOG, refusal);
  if (!replicated) throw unavailable(`not all replicas confirmed; ${nouns.singular} may have been created`);
  // Of those that were made at once the first stay.
  const isFirst = (await recordOf(nodes, uniqueName)) === keyId;
  const over = await nodes.run(room.index, (redis) => redis.zrange(room.index, String(room.max), '-1'));
  if (isFirst && !over.includes(keyId)) return keyId;
  await log.write({ apiId: SHARED_LOG, operation: 'delete', keyId, fields: {} });
  throw isFirst ? full() : conflict();
}

/** Returns the id of the record of this name; undefined where there is none. */
export async function recordOf(nodes: RedisNodes, uniqueName: string): Promise<string | undefined> {
  const index = identityIndexKey(SHARED_LOG, uniqueName);
  const [id] = await nodes.run(index, (redis) => redis.zrange(index, '0', '0'));
  return id;
}
