import type { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import type { RedisNodes } from '../../../shared/redis/redis.ts';
import {
  crashFaults,
  evictionFaults,
  failoverFaults,
  type RedisFacts,
  readFacts,
} from '../../../shared/redis/server-facts.ts';

const good: RedisFacts = {
  runId: 'r',
  version: '7.0.15',
  settings: new Map([
    ['appendonly', 'yes'],
    ['appendfsync', 'always'],
    ['no-appendfsync-on-rewrite', 'no'],
  ]),
  refusal: undefined,
  rewriting: false,
  rewritten: true,
  memoryMax: 0,
  memoryPolicy: 'noeviction',
  memoryUsed: 0,
  machineMemory: 0,
  unwritten: [],
  timeMs: 0,
  evicted: 0,
  replicas: 0,
};

test('policy and limit count only together', () => {
  expect(evictionFaults({ ...good, memoryPolicy: 'allkeys-lru' })).toEqual([]);
  expect(evictionFaults({ ...good, memoryMax: 1 })).toEqual([]);
  for (const memoryPolicy of ['allkeys-lru', 'allkeys-random', 'volatile-ttl'])
    expect(evictionFaults({ ...good, memoryMax: 1, memoryPolicy })).toEqual([
      expect.stringContaining('maxmemory-policy noeviction'),
    ]);
  expect(evictionFaults({ ...good, evicted: 1 })).toEqual([expect.stringContaining('has evicted 1 keys')]);
});

test('a replica that no write waits for is a fault, because a failover can make it the primary', () => {
  expect(failoverFaults({ ...good, replicas: 2 }, 2)).toEqual([]);
  expect(failoverFaults({ ...good, replicas: 1 }, 2)).toEqual([]);
  expect(failoverFaults({ ...good, replicas: 2 }, 1)).toEqual([
    expect.stringContaining('set REDIS_REPLICAS=2'),
  ]);
});

test('each setting that risks writes is a fault', () => {
  expect(crashFaults(good)).toEqual([]);
  const changed = (name: string, value: string) =>
    crashFaults({ ...good, settings: new Map([...good.settings, [name, value]]) });
  expect(changed('appendonly', 'no')).toEqual([expect.stringContaining('appendonly no')]);
  expect(changed('appendfsync', 'everysec')).toEqual([expect.stringContaining('appendfsync everysec')]);
  expect(changed('no-appendfsync-on-rewrite', 'yes')).toEqual([
    expect.stringContaining('no-appendfsync-on-rewrite no'),
  ]);
  expect(crashFaults({ ...good, settings: new Map(), refusal: 'NOPERM no' })).toEqual([
    expect.stringContaining('NOPERM no'),
  ]);
});

test('relies on an append-only file once complete', () => {
  const incomplete = [expect.stringContaining('until Redis has written the first append-only file')];
  expect(crashFaults({ ...good, rewriting: true })).toEqual([]);
  expect(crashFaults({ ...good, rewritten: false })).toEqual([]);
  expect(crashFaults({ ...good, rewriting: true, rewritten: false })).toEqual(incomplete);
  expect(crashFaults({ ...good, rewriting: true }, true)).toEqual(incomplete);
  expect(crashFaults(good, true)).toEqual([]);
});

test.each([
  ['aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\naof_last_bgrewrite_status:ok', false],
  ['aof_rewrite_in_progress:1\r\naof_rewrite_scheduled:0\r\naof_last_bgrewrite_status:ok', true],
  ['aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:1\r\naof_last_bgrewrite_status:ok', true],
  ['aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\naof_last_bgrewrite_status:err', true],
])('is rewriting the file until it succeeds: %j', async (info, rewriting) => {
  const nodes = { within: <T>(_server: Redis, reply: Promise<T>) => reply };
  const redis = { info: async () => `# Persistence\r\n${info}\r\n`, config: async () => [] };
  const facts = await readFacts(nodes as unknown as RedisNodes, redis as unknown as Redis);
  expect(facts.rewriting).toBe(rewriting);
});
