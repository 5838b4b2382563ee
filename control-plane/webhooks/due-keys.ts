import type { RedisNodes } from '#shared/redis/redis.ts';
import { apiKeys, exhaustedPools, expiryIndex, poolKey, recordKey } from '#shared/redis/redis-keys.ts';
import { Script } from '#shared/redis/script.ts';
import type { DueKey } from './expiry-schedule.ts';

const readScript = new Script(new URL('./read-due.lua', import.meta.url));
const scheduleScript = new Script(new URL('./schedule-expiries.lua', import.meta.url));

/** Keys that one run of a script reads. */
export const DUE_AT_ONCE = 200;

/** A key as events about it name it. */
export interface NamedKey {
  readonly keyId: string;
  readonly externalId?: string;
  readonly name?: string;
}

/** A key whose next event about its expiry is due. */
export interface ExpiringKey extends NamedKey, DueKey {}

/** A pool of credits that ran out, with the keys that share it. */
export interface ExhaustedPool {
  readonly poolId: string;
  /** Unix milliseconds by the clock of Redis. */
  readonly sinceMs: number;
  readonly keys: readonly NamedKey[];
}

/** Everything in one API about which an event is due. */
export interface DueInApi {
  readonly keys: readonly ExpiringKey[];
  readonly pools: readonly ExhaustedPool[];
}

/** The index of keys by expiry, of each API in the API's own slot, and the pools that ran out of credits. */
export class DueKeys {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /** Reads what is due; undefined if there is no such API. Its cost depends on what is due, not on all keys. */
  async read(apiId: string, nowMs: number): Promise<DueInApi | undefined> {
    const { head } = apiKeys(apiId);
    const keys = [head, expiryIndex(apiId), exhaustedPools(apiId)];
    const args = [nowMs, DUE_AT_ONCE, recordKey(apiId, ''), poolKey(apiId, '')];
    const reply = (await this.#run(readScript, keys, args)) as [] | [string[][], string[][]];
    const [due, pools] = reply;
    if (!due || !pools) return undefined;
    return {
      keys: due.map(([keyId = '', dueMs, expires, externalId, name]) => ({
        ...namedKey([keyId, externalId, name]),
        ...{ dueMs: Number(dueMs), expiresMs: Number(expires) },
      })),
      pools: pools.map(([poolId = '', sinceMs, ...values]) => ({
        ...{ poolId, sinceMs: Number(sinceMs) },
        keys: Array.from({ length: values.length / 3 }, (_, i) => namedKey(values.slice(3 * i, 3 * i + 3))),
      })),
    };
  }

  /** Sets when the next event of each key is due, undefined = never, and forgets the pools. */
  async settle(
    apiId: string,
    keys: readonly (ExpiringKey & { readonly nextMs: number | undefined })[],
    pools: readonly ExhaustedPool[],
  ): Promise<void> {
    if (keys.length + pools.length === 0) return;
    const args = [
      ...[recordKey(apiId, ''), keys.length],
      ...keys.flatMap(({ keyId, dueMs, expiresMs, nextMs = '' }) => [keyId, dueMs, expiresMs || '', nextMs]),
      ...pools.flatMap(({ poolId, sinceMs }) => [poolId, sinceMs]),
    ];
    await this.#run(scheduleScript, [expiryIndex(apiId), exhaustedPools(apiId)], args);
  }

  #run(script: Script, keys: readonly string[], args: readonly (string | number)[]): Promise<unknown> {
    return this.#nodes.run(keys[0] ?? '', (redis) => script.run(redis, keys, args));
  }
}

function namedKey([keyId = '', externalId = '', name = '']: readonly (string | undefined)[]): NamedKey {
  return { keyId, ...(externalId ? { externalId } : {}), ...(name ? { name } : {}) };
}
