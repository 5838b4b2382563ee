import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type RedisServer, startRedis } from '../../../deploy/dev/redis-server.ts';
import { type Clock, systemClock } from '../../../shared/process/clock.ts';
import { createLogger } from '../../../shared/process/log.ts';
import { RedisNodes } from '../../../shared/redis/redis.ts';
import { redisConfig } from '../../harness/config.ts';
import { eventually, turns } from '../../harness/waiting.ts';
import { Timeline } from '../../proof/simulation/clock.ts';

let directory: string;
let server: RedisServer;
let nodes: RedisNodes;

function open(clock: Clock): void {
  const config = redisConfig({ REDIS_URL: server.url, REDIS_COMMAND_TIMEOUT_MS: '300' });
  nodes = new RedisNodes(config, clock, createLogger('verifier', 'silent'));
}

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kf-redis-'));
  server = await startRedis(directory, ['--appendonly', 'no']);
  open(systemClock);
});
afterEach(async () => {
  server.process.kill('SIGCONT');
  await nodes.close();
  await server.stop();
  rmSync(directory, { recursive: true });
});

test('the server is the one that the run is about', async () => {
  const info = await nodes.run('', (redis) => redis.info('server'));
  const name = /^server_name:(\w+)/m.exec(info)?.[1]; // only Valkey says it
  expect(name).toBe(process.env['SERVER_NAME'] ?? name);
});

test('loses no answer that came in time', async () => {
  const redis = await nodes.connection('');
  for (let i = 0; i < 5; i++) {
    const answer = nodes.within(redis, redis.ping());
    await new Promise((resolve) => setImmediate(resolve)); // it is sent
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
    expect(await answer).toBe('PONG');
  }
});

test('a timeout fails all of its connection', async () => {
  // Time is stepped: on a machine that stands still for a while both would be too late at once.
  const timeline = new Timeline();
  const after = (delayMs: number, run: () => void) => timeline.after(delayMs, run);
  open({ ...systemClock, monotonicMs: () => timeline.nowMs, after });
  const redis = await nodes.connection('');
  expect(nodes.connection('')).toBe(redis);
  expect(await nodes.within(redis, redis.ping())).toBe('PONG');
  server.process.kill('SIGSTOP');
  const messageOf = (work: Promise<unknown>) => work.catch(({ code, message }) => `${code}: ${message}`);
  const first = messageOf(nodes.within(redis, redis.ping()));
  await timeline.run(100);
  const second = messageOf(nodes.within(redis, redis.ping()));
  await timeline.run(300);
  expect(await first).toBe('SERVICE_UNAVAILABLE: Redis did not answer within 300 ms');
  expect(await second).toBe('SERVICE_UNAVAILABLE: the connection to Redis was lost');
  server.process.kill('SIGCONT');
  const next = await nodes.connection('');
  expect(next).not.toBe(redis);
  expect(await nodes.within(next, next.ping())).toBe('PONG');
});

test('cuts a connection of many refusals once', async () => {
  const warnings: Error[] = [];
  const warned = (warning: Error) => void warnings.push(warning);
  process.on('warning', warned);
  try {
    const redis = await nodes.connection('');
    await redis.call('REPLICAOF', '127.0.0.1', '1'); // from now on it refuses writes: READONLY
    const writes = Array.from({ length: 30 }, () => nodes.within(redis, redis.set('a', 'b')));
    for (const { status } of await Promise.allSettled(writes)) expect(status).toBe('rejected');
    await eventually(async () => (await nodes.connection('')) !== redis);
    await new Promise((resolve) => setImmediate(resolve)); // warnings come in a tick of their own
    expect(warnings).toEqual([]);
  } finally {
    process.off('warning', warned);
  }
});

test('waits for nothing once connections are closed', async () => {
  const redis = await nodes.connection('');
  const waits = vi.spyOn(globalThis, 'setTimeout');
  const ended = new Promise((resolve) => redis.once('end', resolve));
  await nodes.close();
  await ended;
  await turns();
  expect(waits.mock.calls.filter(([, delayMs = 0]) => delayMs > 0)).toEqual([]);
});
