import { poolName, poolSuffix, type RateLimit, windowsOf } from '#shared/protocol/records/limit.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { apiKeys, recordKey, SHARED_LOG, windowKey } from '#shared/redis/redis-keys.ts';

/** A rate limit, and the key or identity that has it. */
interface LimitOf extends Omit<RateLimit, 'async'> {
  readonly ownerId: string;
}

/** The windows of rate limits in Redis, of one API or else the shared log; `windows.lua` describes them. */
export class LimitView {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /** Resolves with the id under which the uses of a key's limits count: that of the first key of its rotations. */
  async ownerOf(apiId: string, keyId: string): Promise<string> {
    const record = recordKey(apiId, keyId);
    return (await this.#nodes.run(record, (redis) => redis.hget(record, 'W'))) ?? keyId;
  }

  /** Resolves with the rest of the current window. Amounts that verifiers took in advance count as used. */
  async remaining(apiId: string | undefined, limit: LimitOf, nowMs: number): Promise<number> {
    return (await this.window(apiId, limit, nowMs)).remaining;
  }

  /** Resolves with the rest of the current window, and when that ends, if there is one in Redis. */
  async window(
    apiId: string | undefined,
    { ownerId, ...of }: LimitOf,
    nowMs: number,
  ): Promise<{ readonly remaining: number; readonly endsAt?: number }> {
    const { limit, duration } = of;
    const window = windowKey(apiId ?? SHARED_LOG, poolName(ownerId, poolSuffix(of)));
    const [n, c, p] = await this.#nodes.run(window, (redis) => redis.hmget(window, 'n', 'c', 'p'));
    // The number of a period is its end.
    if (typeof windowsOf(of) === 'string') {
      const endsAt = 1000 * Number(n);
      if (!(endsAt > nowMs)) return { remaining: limit };
      return { remaining: Math.max(0, limit - Number(c)), endsAt };
    }
    const number = Math.floor(nowMs / duration);
    const age = number - Number(n ?? Number.NaN);
    // The clock of Redis may be a window ahead.
    const [granted, before] = age <= 0 ? [Number(c), Number(p)] : age === 1 ? [0, Number(c)] : [0, 0];
    const endsAt = (number + 1) * duration;
    const share = Math.min(1, (endsAt - nowMs) / duration);
    const remaining = Math.max(0, limit - Math.floor(before * share) - granted);
    return age <= 1 ? { remaining, endsAt } : { remaining };
  }

  /** Resolves with the number of places of a concurrency limit that were in use when verifiers last told Redis. */
  async placesInUse(
    apiId: string | undefined,
    { ownerId, name }: Pick<LimitOf, 'ownerId' | 'name'>,
  ): Promise<number> {
    const space = apiId ?? SHARED_LOG;
    const places = windowKey(space, poolName(ownerId, poolSuffix({ name, duration: 0 })));
    const { members } = apiKeys(space);
    const holders = Object.entries(await this.#nodes.run(places, (redis) => redis.hgetall(places)));
    const inUse = holders.map(async ([field, numbers]) => {
      const member = await this.#nodes.run(members, (redis) => redis.zscore(members, field.slice(1)));
      // As exchange.lua: granted, taken, turn, spoken for by questions that take them next.
      const counts = numbers.split(' ').map(Number);
      return member === null ? 0 : (counts[1] ?? 0) + (counts[3] ?? 0);
    });
    return (await Promise.all(inUse)).reduce((sum, each) => sum + each, 0);
  }
}
