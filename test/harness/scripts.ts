import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { type Run, send } from '../../shared/redis/script.ts';
import { Fleet } from './fleet.ts';

/** Gives the tests of a file a Redis of their own, empty before each test, and runs scripts there. */
export function scriptsOnRedis() {
  const fleet = new Fleet();
  const at = { redis: new Redis({ lazyConnect: true }) };
  beforeAll(async () => {
    await fleet.startRedis();
    at.redis = new Redis(fleet.redisUrl);
  });
  afterAll(async () => {
    at.redis.disconnect();
    await fleet.stop();
  });
  beforeEach(() => at.redis.flushall());
  const run = <T>(each: Run<T>) => send(at.redis, each);
  return { at, run };
}
