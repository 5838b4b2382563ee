import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type RedisServer, startRedis } from '../../../../deploy/dev/redis-server.ts';
import {
  apiKeys,
  apiList,
  auditStream,
  recordKey,
  unusedKeys,
  verifierIds,
  verifierStatus,
  webhookSender,
} from '../../../../shared/redis/redis-keys.ts';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { Process } from '../../../harness/processes.ts';
import { scratch } from '../../../harness/scratch.ts';
import { eventually } from '../../../harness/waiting.ts';

const DAY = 86_400_000;
const API = 'shop';
const COUNT = 600;
const VERIFIER = `verifier_${'1'.repeat(20)}`;
const directory = scratch('test');
let server: RedisServer;
let redis: Redis;
let controlPlane: Process;

beforeAll(async () => {
  server = await startRedis(join(directory, 'redis'));
  redis = new Redis({ path: server.url.replace('unix://', ''), lazyConnect: true });
  await redis.connect();
  controlPlane = new Process('control-plane/main.ts', { REDIS_URL: server.url, ROOT_KEY: generateKey(32) });
});
afterAll(async () => {
  await controlPlane.stop('SIGKILL').catch(() => undefined);
  redis.disconnect();
  await server.stop();
  rmSync(directory, { recursive: true, force: true });
});

test('a control plane that is killed doubles nothing', async () => {
  const longAgo = Date.now() - 50 * DAY;
  const writes = redis.pipeline();
  for (let i = 0; i < COUNT; i++) {
    writes.hset(recordKey(API, `key_${i}`), { p: `key_${i}`, c: longAgo, e: '1' });
    writes.zadd(apiKeys(API).index, i + 1, `key_${i}`);
  }
  writes.zadd(apiList, 0, API);
  const rule = { unused: 30 * DAY, unusedSince: longAgo };
  writes.hset(apiKeys(API).head, { c: longAgo, L: 1000, Lf: 1000, n: COUNT, ...rule });
  const nowMs = Date.now();
  const status = {
    ...{ id: VERIFIER, host: 'node-1', version: '1', protocol: 1, startedAt: nowMs, reportedAt: nowMs },
    ...{ keysInMemory: 0, verdicts: { memory: 0, redis: 0 }, apis: [], apisNotShown: 0 },
    usage: { untilMs: nowMs },
  };
  writes.zadd(verifierIds, 0, VERIFIER);
  writes.set(verifierStatus(VERIFIER), JSON.stringify(status));
  await writes.exec();

  const changes = async () => Number((await redis.hget(apiKeys(API).head, 's')) ?? 0);
  for (let kill = 0; kill < 3; kill++) {
    const before = await changes();
    await controlPlane.start();
    // While keys are being disabled, or are in no audit log yet.
    await eventually(async () => (await changes()) > before + 50 * kill);
    await controlPlane.stop('SIGKILL').catch(() => undefined);
    // The others would wait for 10 s.
    await redis.del(webhookSender);
  }
  await controlPlane.start();
  await eventually(async () => (await changes()) === COUNT && !(await redis.exists(unusedKeys(API))));
  const events = (await redis.xrange(auditStream('done'), '-', '+')).map(([, [, text]]) =>
    JSON.parse(text ?? ''),
  );
  const disabled = events.filter(({ operation }) => operation === 'rules.disableUnused');
  expect(disabled).toHaveLength(COUNT);
  expect(new Set(disabled.map(({ on }) => on.keyId)).size).toBe(COUNT);
  expect(new Set(disabled.map(({ sequence }) => sequence)).size).toBe(COUNT);
  expect(await changes()).toBe(COUNT);
});
