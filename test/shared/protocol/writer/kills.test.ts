import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Keys } from '../../../../control-plane/core/keys/keys.ts';
import { type RedisServer, startRedis } from '../../../../deploy/dev/redis-server.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { RedisDirectory } from '../../../../shared/protocol/follower/session.ts';
import { RedisChangeLog } from '../../../../shared/protocol/log/change-log.ts';
import type { KilledFollower, LogEntry } from '../../../../shared/protocol/log/change-log-port.ts';
import { DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { PROTOCOL } from '../../../../shared/protocol/records/protocol.ts';
import { RedisSweepStore } from '../../../../shared/protocol/writer/sweep-store.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import { apiKeys, apiList, SHARED_LOG } from '../../../../shared/redis/redis-keys.ts';
import { redisConfig } from '../../../harness/config.ts';
import { scratch } from '../../../harness/scratch.ts';
import { eventually, PATIENT } from '../../../harness/waiting.ts';

const directory = scratch('test');
const { head, members } = apiKeys('api');
let server: RedisServer;
let nodes: RedisNodes;
let log: RedisChangeLog;

beforeEach(async () => {
  server = await startRedis(join(directory, 'redis'));
  nodes = new RedisNodes(
    redisConfig({ REDIS_URL: server.url, ...PATIENT }),
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

function upkeep(): RedisSweepStore {
  const writer = new DurableWriter(nodes, 0);
  const limits = { leaseMs: 1000, apiAutoCreate: false };
  const keys = new Keys({ nodes, writer, log, clock: systemClock, limits });
  return new RedisSweepStore(nodes, writer, keys, () => Date.now());
}

/** A change that another server wrote, completed by fence at once; whom that killed. */
async function completeByFence(): Promise<readonly KilledFollower[]> {
  const written = await log.write({ apiId: 'api', operation: 'noop', keyId: '', fields: {} });
  if (written.status !== 'OK') throw new Error(written.status);
  const closing = await log.close('api', { ...written, server: '' });
  if (closing.state === 'LOST') throw new Error('lost');
  return closing.killed;
}

test('a lost kill does not remove one killed anew', async () => {
  const first = await completeByFence();
  expect(first).toMatchObject([{ name: 'silent' }]);
  const redis = await nodes.connection(head);
  await redis.zadd(members, 0, 'silent'); // as on a replica that the kill had not reached
  const second = await completeByFence();
  expect(await log.reap('api', first)).toBe(0);
  expect(await redis.zcard(members)).toBe(1);
  expect(await log.reap('api', second)).toBe(1);
});

test('a killed follower keeps its kill', async () => {
  const first = await completeByFence();
  expect(await completeByFence()).toEqual([]);
  expect(await log.reap('api', first)).toBe(1);
});

test('the sweep looks beside all APIs once a round', async () => {
  const redis = await nodes.connection(head);
  await redis.zadd(apiList, 0, 'a', 0, 'b', 0, 'c');
  const store = upkeep();
  expect(await store.ids('', 2)).toEqual([SHARED_LOG, 'a']);
  expect(await store.ids('a', 2)).toEqual(['b', 'c']);
  expect(await store.ids('c', 2)).toEqual([]);
});

describe('a follower that did not acknowledge a change', () => {
  const silent = `${PROTOCOL}.silent`;
  const noop = { apiId: 'api', operation: 'noop', keyId: '', fields: {} } as const;

  async function write(): Promise<LogEntry> {
    const written = await log.write(noop);
    if (written.status !== 'OK') throw new Error(written.status);
    return written;
  }

  /** A member that has acknowledged the first change. */
  async function register(name: string) {
    await (await nodes.connection(head)).del(members);
    const { hash, sequence } = await write();
    const session = await new RedisDirectory(nodes, 0, systemClock).open('api');
    await session.register(name, 'n');
    const sync = () => session.sync({ member: name, position: sequence, hash, creations: '0-', nonce: 'n' });
    await sync();
    return sync;
  }

  test('is removed by the fence without a lease since', async () => {
    const sync = await register(silent);
    const written = await write();
    expect(await log.close('api', written)).toMatchObject({ followers: 1, removed: [silent], killed: [] });
    expect(await log.check({ apiId: 'api', ...written, keyId: '', names: 0 })).toMatchObject({
      followers: 0,
    });
    expect(await sync()).toMatchObject({ status: 'NOREG' });
  });

  test('is killed when it was granted one since', async () => {
    const sync = await register(silent);
    const written = await write();
    expect(await sync()).toMatchObject({ status: 'OK', sequence: 2 });
    expect(await log.close('api', written)).toMatchObject({ removed: [], killed: [{ name: silent }] });
  });

  test('is removed if it had acknowledged everything', async () => {
    const sync = await register(silent);
    const { sequence: position, hash } = await write();
    await sync();
    const session = await new RedisDirectory(nodes, 0, systemClock).open('api');
    await session.sync({ member: silent, position, hash, creations: '0-', nonce: 'n' });
    expect(await log.close('api', await write())).toMatchObject({ removed: [silent], killed: [] });
  });

  test.each(['', 'f'.repeat(40)])('is killed when server "%s" wrote the change', async (writer) => {
    await register(silent);
    const written = { ...(await write()), server: writer };
    expect(await log.close('api', written)).toMatchObject({ removed: [], killed: [{ name: silent }] });
  });

  test('is killed if the server started again since', async () => {
    await register(silent);
    const written = await write();
    await server.stop();
    server = await startRedis(join(directory, 'redis'));
    const closing = async () => log.close('api', written).catch(() => undefined);
    await eventually(async () => (await closing()) !== undefined);
    expect(await (await nodes.connection(head)).zrange(members, '0', '-1')).toEqual([silent]);
  });
});

describe('a follower whose score somebody set to what no acknowledgement gives', () => {
  const scores = ['-inf', '-1.5', '-1e300', '+inf', '1e300', '3.5'];

  test.each(scores)('%s: its acknowledgement completes no change', async (score) => {
    const redis = await nodes.connection(head);
    await redis.zadd(members, score, 'silent');
    const written = await log.write({ apiId: 'api', operation: 'noop', keyId: '', fields: {} });
    if (written.status !== 'OK') throw new Error(written.status);
    const { sequence, hash } = written;
    const standing = await log.check({
      apiId: 'api',
      sequence,
      hash,
      keyId: '',
      replicated: false,
      names: 9,
    });
    expect(standing).toMatchObject({ state: 'INTACT', laggards: 1, names: ['silent'] });
  });

  test.each(scores)('%s: its SYNC is refused', async (score) => {
    const redis = await nodes.connection(head);
    await redis.zadd(members, score, 'silent');
    const session = await new RedisDirectory(nodes, 0, systemClock).open('api');
    const request = { member: 'silent', position: 0, hash: '', creations: '0-', nonce: 'n' };
    expect(await session.sync(request)).toMatchObject({ status: 'NOREG' });
  });

  test.each(scores)('%s: a fence kills it and it is reaped', async (score) => {
    const redis = await nodes.connection(head);
    await redis.zadd(members, score, 'silent');
    await completeByFence();
    const { killed } = await upkeep().head('api');
    expect(killed).toMatchObject([{ name: 'silent' }]);
    expect(await log.reap('api', killed)).toBe(1);
    expect(await redis.zcard(members)).toBe(0);
  });
});
