import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type RedisServer, startRedis } from '../../../../deploy/dev/redis-server.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { PointerBatcher } from '../../../../shared/protocol/follower/pointers.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import { formatPointer, secretPointer } from '../../../../shared/redis/redis-keys.ts';
import { redisConfig } from '../../../harness/config.ts';
import { eventually, PATIENT } from '../../../harness/waiting.ts';

let directory: string;
let server: RedisServer;
let nodes: RedisNodes;
let keys: PointerBatcher;
/** The end of the hold. */
let over: (() => void) | undefined;
const release = () => over?.();

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kf-find-keys-'));
  server = await startRedis(directory, ['--appendonly', 'no']);
  const config = redisConfig({ REDIS_URL: server.url, ...PATIENT });
  nodes = new RedisNodes(config, systemClock, createLogger('verifier', 'silent'));
  over = undefined;
  keys = new PointerBatcher(nodes, {
    ...systemClock,
    after(_delayMs, run) {
      const end = () => {
        over = undefined;
        run();
      };
      over = end;
      return {
        cancel() {
          if (over === end) over = undefined;
        },
      };
    },
  });
  const redis = await nodes.connection('');
  for (const name of ['a', 'b']) await redis.set(secretPointer(name), formatPointer('api', `key-${name}`));
  await redis.set(secretPointer('damaged'), 'damaged');
  await keys.lookUp('a'); // Redis knows the script from here on
  release();
  await redis.config('RESETSTAT');
});
afterEach(async () => {
  vi.restoreAllMocks();
  await nodes.close();
  await server.stop();
  rmSync(directory, { recursive: true });
});

const commands = async () => {
  const redis = await nodes.connection('', 'counting');
  return Number(/^cmdstat_evalsha:calls=(\d+)/m.exec(await redis.info('commandstats'))?.[1] ?? 0);
};
const codeOf = (work: Promise<unknown>) => work.catch(({ code, message }) => code ?? message);

test('asks for those soon after by one command', async () => {
  expect(await keys.lookUp('a')).toEqual({ apiId: 'api', keyId: 'key-a' });
  const held = Promise.all(['none', 'b', 'other', 'a'].map((name) => keys.lookUp(name)));
  expect(await commands()).toBe(1);
  release();
  expect(await held).toEqual([
    undefined,
    { apiId: 'api', keyId: 'key-b' },
    undefined,
    { apiId: 'api', keyId: 'key-a' },
  ]);
  expect(await commands()).toBe(2);
  // What comes soon after these is held, too; but not what comes later.
  const again = keys.lookUp('b');
  expect(await commands()).toBe(2);
  release();
  expect(await again).toBeDefined();
  release();
  expect(over).toBeUndefined();
  expect(await keys.lookUp('none')).toBeUndefined();
  expect(await commands()).toBe(4);
});

test('asks for one secret by several hashes at once', async () => {
  expect(await keys.lookUp('none', 'other', 'b', 'a')).toEqual({ apiId: 'api', keyId: 'key-b' });
  expect(await commands()).toBe(1);
  release();
  expect(await keys.lookUp('none', 'other')).toBeUndefined();
});

test('no more than 16 are held', async () => {
  await keys.lookUp('a');
  const held = Array.from({ length: 40 }, (_, i) => keys.lookUp(i % 2 ? 'b' : `none-${i}`));
  expect((await Promise.all(held.slice(0, 32))).filter((found) => found !== undefined)).toHaveLength(16);
  expect(await commands()).toBe(3);
  release();
  await Promise.all(held);
  expect(await commands()).toBe(4);
});

test('a damaged pointer fails nobody else', async () => {
  await keys.lookUp('a');
  const held = ['a', 'damaged', 'b'].map((name) => codeOf(keys.lookUp(name)));
  release();
  expect(await Promise.all(held)).toEqual([
    { apiId: 'api', keyId: 'key-a' },
    'a key pointer in Redis is damaged',
    { apiId: 'api', keyId: 'key-b' },
  ]);
});

test('a foreign reply or a lost Redis fails all', async () => {
  await keys.lookUp('a');
  const redis = await nodes.connection('');
  vi.spyOn(redis, 'evalsha').mockResolvedValueOnce([secretPointer('a'), ['api key-a']]);
  const mistaken = ['a', 'none'].map((name) => codeOf(keys.lookUp(name)));
  release();
  expect(await Promise.all(mistaken)).toEqual(['SERVICE_UNAVAILABLE', 'SERVICE_UNAVAILABLE']);
  await eventually(async () => (await nodes.connection('')) !== redis);

  const held = ['a', 'none'].map((name) => codeOf(keys.lookUp(name)));
  await server.stop();
  release();
  expect(await Promise.all(held)).toEqual(['SERVICE_UNAVAILABLE', 'SERVICE_UNAVAILABLE']);
});
