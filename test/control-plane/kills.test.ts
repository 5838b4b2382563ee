import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Killed } from '../../control-plane/change-log.ts';
import { DurableWriter, RedisChangeLog } from '../../control-plane/redis-change-log.ts';
import { type RedisServer, startRedis } from '../../deploy/dev/redis-server.ts';
import { systemClock } from '../../shared/clock.ts';
import { loadConfig } from '../../shared/config.ts';
import { apiKeys } from '../../shared/layout.ts';
import { createLogger } from '../../shared/log.ts';
import { RedisNodes } from '../../shared/redis.ts';
import { redisSettings } from '../../shared/redis-settings.ts';

const directory = mkdtempSync(join(tmpdir(), 'keyfence-test-'));
const { head, members } = apiKeys('api');
let server: RedisServer;
let nodes: RedisNodes;
let log: RedisChangeLog;

beforeEach(async () => {
  server = await startRedis(join(directory, 'redis'));
  nodes = new RedisNodes(
    loadConfig(redisSettings, { REDIS_URL: server.url }),
    systemClock,
    createLogger('control-plane', 'silent'),
  );
  log = new RedisChangeLog(nodes, new DurableWriter(nodes, 0), 0, Date.now);
  const redis = await nodes.connection(head);
  await redis.flushall();
  await redis.hset(head, { c: 1, L: 1000, Lf: 1000 });
  await redis.zadd(members, 0, 'silent');
});

afterEach(async () => {
  await nodes.close();
  await server.stop();
  rmSync(directory, { recursive: true, force: true });
});

/** A change, completed by fence at once; whom that killed. */
async function completeByFence(): Promise<readonly Killed[]> {
  const written = await log.write({ apiId: 'api', operation: 'noop', keyId: '', fields: {} });
  if (written.status !== 'OK') throw new Error(written.status);
  const closing = await log.close('api', written.sequence, written.hash);
  if (closing.state === 'LOST') throw new Error('lost');
  return closing.killed;
}

test('what waited for a kill that a failover lost does not remove the follower that was killed anew', async () => {
  const first = await completeByFence();
  expect(first).toMatchObject([{ name: 'silent' }]);
  const redis = await nodes.connection(head);
  await redis.zadd(members, 0, 'silent'); // as on a replica that the kill had not reached
  const second = await completeByFence();
  expect(await log.reap('api', first)).toBe(0);
  expect(await redis.zcard(members)).toBe(1);
  expect(await log.reap('api', second)).toBe(1);
});

test('a follower that is killed already keeps its kill, so that what waits for it still removes it', async () => {
  const first = await completeByFence();
  expect(await completeByFence()).toEqual([]);
  expect(await log.reap('api', first)).toBe(1);
});
