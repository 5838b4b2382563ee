import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { type Run, Script, send } from '../../shared/redis/script.ts';
import { Fleet } from './fleet.ts';

type Values = readonly (string | number)[];

/** Gives the tests of a file a Redis of their own, empty before each test, and runs scripts there. */
export function scriptsOnRedis<Reply = unknown>() {
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
  const controlPlane = (name: string, keys: readonly string[], args: Values = []) =>
    new Script(new URL(`../../control-plane/${name}.lua`, import.meta.url)).run(
      at.redis,
      keys,
      args,
    ) as Promise<Reply>;
  const run = <T>(each: Run<T>) => send(at.redis, each);
  return { at, run, controlPlane };
}
