import { command, oneOf } from '../../redis/command.ts';
import type { RedisNodes } from '../../redis/redis.ts';
import {
  apiKeys,
  apiList,
  apiUsageKey,
  declaredIndex,
  expiryIndex,
  identityIndexKey,
  metaKey,
  poolKey,
  poolMarks,
  recordKey,
  SHARED_LOG,
  tagUsageKey,
  unusedKeys,
} from '../../redis/redis-keys.ts';
import type { Run } from '../../redis/script.ts';
import { parseScore } from '../log/change-log.ts';
import type { DurableWriter } from '../log/durable-writer.ts';
import { apiIds, createSharedLog } from '../log/new-log.ts';
import { LENGTH_MS, RETENTION } from '../records/usage.ts';
import { TOKEN_LEEWAY } from '../timing.ts';
import type { Head, LeaseStep, SetLending, SweepStore } from './sweep.ts';

export const setLease = command(
  new URL('./set-lease.lua', import.meta.url),
  ['head'],
  ['step', 'lease', 'name'],
  oneOf('status', { OK: ['fencedMs#'], CONFLICT: [], NO_API: [] }),
);
export const setLending = command(
  new URL('./set-lending.lua', import.meta.url),
  ['head'],
  ['step', 'name', 'outlives'],
  (reply) => reply === 'OK',
);
export const sweepApi = command(
  new URL('./sweep-api.lua', import.meta.url),
  ['head', 'index'],
  ['records', 'metas', 'owners', 'pools', '...keyIds'],
  Number,
);
export const forgetApi = command(
  new URL('./forget-api.lua', import.meta.url),
  [
    'head',
    'log',
    'members',
    'index',
    'creations',
    'held',
    'usage',
    'tags',
    'due',
    'marks',
    'unused',
    'declared',
  ],
  ['...days'],
  (reply) => reply === 1,
);

/** The script call that removes records of a deleted API. */
export function sweepRun(apiId: string, keyIds: readonly string[]): Run<number> {
  const { head, index } = apiKeys(apiId);
  const [records, metas] = [recordKey(apiId, ''), metaKey(apiId, '')];
  const [owners, pools] = [identityIndexKey(apiId, ''), poolKey(apiId, '')];
  return sweepApi({ head, index, records, metas, owners, pools, keyIds });
}

/** The script call that frees the id of a deleted API. @param days numbers of the days that may have usage by tag */
export function forgetRun(apiId: string, days: readonly number[]): Run<boolean> {
  const { head, log, members, index, creations, held } = apiKeys(apiId);
  return forgetApi({
    ...{
      head,
      log,
      members,
      index,
      creations,
      held,
      usage: apiUsageKey(apiId),
      tags: tagUsageKey(apiId, ''),
    },
    ...{
      due: expiryIndex(apiId),
      marks: poolMarks(apiId),
      unused: unusedKeys(apiId),
      declared: declaredIndex(apiId),
      days,
    },
  });
}

/** Number of records of a deleted API that one run of the script removes. */
const SWEEP_BATCH = 500;

/** Removes what else keys of an API leave in Redis: pointers to them, and its place in the list of APIs. */
interface PointedKeys {
  secretHashOf(apiId: string, keyId: string): Promise<string | undefined>;
  forgetPointers(apiId: string, keyId: string, secretHash: string): Promise<void>;
  listApi(apiId: string): Promise<void>;
}

/** The sweep store in real Redis. */
export class RedisSweepStore implements SweepStore {
  readonly #nodes: RedisNodes;
  readonly #writer: DurableWriter;
  readonly #keys: PointedKeys;
  readonly #now: () => number;

  /** @param now Unix milliseconds */
  constructor(nodes: RedisNodes, writer: DurableWriter, keys: PointedKeys, now: () => number) {
    this.#nodes = nodes;
    this.#writer = writer;
    this.#keys = keys;
    this.#now = now;
  }

  async ids(after: string, limit: number): Promise<string[]> {
    if (after !== '') return apiIds(this.#nodes, after, limit);
    return [SHARED_LOG, ...(await apiIds(this.#nodes, '', limit - 1))];
  }

  async head(apiId: string): Promise<Head> {
    const { head, members } = apiKeys(apiId);
    const [fields, count, killed] = await this.#nodes.run(head, (redis) =>
      Promise.all([
        redis.hmget(head, 's', 'L', 'Lf', 't', 'c', 'deleted', 'T', 'Tf', 'leeway', 'Wf'),
        redis.zcard(members),
        redis.zrangebyscore(members, '-inf', '(0', 'WITHSCORES'),
      ]),
    );
    const [sequence, grantedMs, fencedMs, name, created, deleted, lends, fenced, outlives, fencedOutlives] =
      fields;
    return {
      sequence: Number(sequence ?? 0),
      grantedMs: Number(grantedMs ?? 0),
      fencedMs: Number(fencedMs ?? 0),
      leaseName: name ?? '',
      isLending: Boolean(lends),
      lendingName: fenced ?? '',
      outlivesMs: Number(outlives ?? TOKEN_LEEWAY.usualMs),
      outlivesFenceMs: Number(fencedOutlives ?? TOKEN_LEEWAY.usualMs),
      created: Boolean(created),
      deleted: Boolean(deleted),
      members: count,
      killed: Array.from({ length: killed.length / 2 }, (_, i) => ({
        name: killed[2 * i] ?? '',
        kill: parseScore(killed[2 * i + 1]),
      })),
    };
  }

  /** Creates the shared log. */
  createSharedLog(leaseMs: number): Promise<void> {
    return createSharedLog(this.#writer, this.#now(), leaseMs);
  }

  async setLease(apiId: string, step: LeaseStep, leaseMs: number, name: string): Promise<boolean> {
    const run = setLease({ head: apiKeys(apiId).head, step, lease: leaseMs, name });
    const { reply, replicated } = await this.#writer.send(run);
    return reply.status === 'OK' && replicated;
  }

  readonly setLending: SetLending = async (apiId, step, name, outlives = 0) => {
    const run = setLending({ head: apiKeys(apiId).head, step, name, outlives });
    const { reply, replicated } = await this.#writer.send(run);
    return reply && replicated;
  };

  async removeKeys(apiId: string): Promise<boolean> {
    const { head, index } = apiKeys(apiId);
    // Read `deleted` last: meanwhile another process may have finished the deletion and created the API
    // again, and these may be its new keys.
    const [keyIds, deleted] = await this.#nodes.run(head, (redis) =>
      Promise.all([redis.zrange(index, '0', String(SWEEP_BATCH - 1)), redis.hget(head, 'deleted')]),
    );
    if (keyIds.length === 0 || !deleted) return false;
    await Promise.all(
      keyIds.map(async (keyId) => {
        const secretHash = await this.#keys.secretHashOf(apiId, keyId);
        if (secretHash) await this.#keys.forgetPointers(apiId, keyId, secretHash);
      }),
    );
    await this.#writer.send(sweepRun(apiId, keyIds));
    return true;
  }

  async forget(apiId: string): Promise<boolean> {
    const { reply: isGone } = await this.#writer.send(forgetRun(apiId, keptDays(this.#now())));
    if (!isGone) return false;
    await this.#nodes.run(apiList, (redis) => redis.zrem(apiList, apiId));
    // Another caller may have created the API again in between.
    if ((await this.head(apiId)).created) await this.#keys.listApi(apiId);
    return true;
  }
}

/** Numbers of the days whose usage is kept, and of the next day in case the clock of Redis is ahead. */
function keptDays(nowMs: number): number[] {
  const today = Math.floor(nowMs / LENGTH_MS.day);
  return Array.from({ length: RETENTION.day + 2 }, (_, i) => today + 1 - i);
}
