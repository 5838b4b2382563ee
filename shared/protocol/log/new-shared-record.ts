import type { Clock } from '../../process/clock.ts';
import type { RedisNodes } from '../../redis/redis.ts';
import { identityIndexKey, SHARED_LOG } from '../../redis/redis-keys.ts';
import { ApiError, unavailable } from '../../rules/errors.ts';
import { generateId, hashSecret } from '../../rules/key-format.ts';
import type { ChangeLog } from './change-log-port.ts';
import type { DurableWriter } from './durable-writer.ts';
import { type NewFields, recordRun } from './new-key-record.ts';
import { inSharedLog } from './new-log.ts';
import { tooOldError } from './write-error.ts';

/** The parts that create records of the shared log. */
export interface RecordParts {
  readonly nodes: RedisNodes;
  readonly writer: DurableWriter;
  readonly log: ChangeLog;
  readonly clock: Clock;
  readonly leaseMs: number;
}

/** A record to be created: a role or a permission. */
interface NewRecord {
  readonly kind: 'role' | 'permission';
  /** The record's name in the index of external ids, which no other record has. */
  readonly uniqueName: string;
  readonly fields: Omit<NewFields, 'externalId'>;
  /** The kind's name in messages, singular and plural. */
  readonly nouns: { readonly singular: string; readonly plural: string };
  /** The index that lists the kind, and its maximum size. */
  readonly room: { readonly index: string; readonly max: number };
}

/**
 * Creates a record of the shared log, in the form of a key but without a secret, and returns its id. Rejects
 * with the error of `conflict` (the name exists), CONFLICT (the index is full), VERIFIERS_TOO_OLD or
 * SERVICE_UNAVAILABLE.
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
  const run = recordRun(record, false, leaseMs);
  const { reply, replicated } = await inSharedLog(
    { writer, clock, leaseMs },
    () => writer.send(run),
    (sent) => sent.reply.status === 'NO_API',
  );
  if (reply.status === 'TOO_OLD') throw tooOldError(SHARED_LOG, reply);
  if (!replicated) throw unavailable(`not all replicas confirmed; ${nouns.singular} may have been created`);
  // If several were created at the same time, the first remain.
  const isFirst = (await recordOf(nodes, uniqueName)) === keyId;
  const over = await nodes.run(room.index, (redis) => redis.zrange(room.index, String(room.max), '-1'));
  if (isFirst && !over.includes(keyId)) return keyId;
  await log.write({ apiId: SHARED_LOG, operation: 'delete', keyId, fields: {} });
  throw isFirst ? full() : conflict();
}

/** Returns the id of the record of this name; undefined if there is none. */
export async function recordOf(nodes: RedisNodes, uniqueName: string): Promise<string | undefined> {
  const index = identityIndexKey(SHARED_LOG, uniqueName);
  const [id] = await nodes.run(index, (redis) => redis.zrange(index, '0', '0'));
  return id;
}
