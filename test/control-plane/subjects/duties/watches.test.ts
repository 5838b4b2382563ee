import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Apis } from '../../../../control-plane/core/apis/apis.ts';
import { Audit } from '../../../../control-plane/subjects/audit/audit.ts';
import { DueKeys, DueWatch } from '../../../../control-plane/subjects/duties/expiries.ts';
import { FleetWatch, WatchedFleet } from '../../../../control-plane/subjects/duties/fleet-watch.ts';
import { FleetView } from '../../../../control-plane/subjects/fleet/fleet.ts';
import { Notices } from '../../../../control-plane/subjects/webhooks/notices.ts';
import { Outbox } from '../../../../control-plane/subjects/webhooks/outbox.ts';
import { type RedisServer, startRedis } from '../../../../deploy/dev/redis-server.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import {
  apiKeys,
  apiList,
  expiryIndex,
  noticeStream,
  poolKey,
  poolMarks,
  recordKey,
  usageLoss,
  verifierIds,
  verifierStatus,
  watchedVerifiers,
  webhookEndpoints,
} from '../../../../shared/redis/redis-keys.ts';
import { redisConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { Process } from '../../../harness/processes.ts';
import { scratch } from '../../../harness/scratch.ts';
import { eventually, PATIENT } from '../../../harness/waiting.ts';
import { SteppedClock } from '../webhooks/stepped-clock.ts';

const DAY = 86_400_000;
const directory = scratch('test');
const log = createLogger('control-plane', 'silent');
let server: RedisServer;
let nodes: RedisNodes;

beforeAll(async () => {
  server = await startRedis(join(directory, 'redis'));
  const config = redisConfig({ REDIS_URL: server.url, ...PATIENT });
  nodes = new RedisNodes(config, systemClock, log);
});
afterAll(async () => {
  await nodes.close();
  await server.stop();
  rmSync(directory, { recursive: true, force: true });
});
const redis = () => nodes.connection('');
beforeEach(async () => {
  await (await redis()).flushall();
  await (await redis()).hset(webhookEndpoints, 'endpoint_1', '{}');
});

const noticesNow = async () =>
  (await (await redis()).xrange(noticeStream, '-', '+')).map(([, fields]) => JSON.parse(fields[1] ?? ''));

describe('keys that expire', () => {
  const clock = new SteppedClock();
  const dueKeys = () => new DueKeys(nodes);
  const newWatch = (leads = [30, 7, 1], visit: () => Promise<void> = async () => undefined) =>
    new DueWatch({
      ...{ clock, log, leads, dueKeys: dueKeys(), notices: new Notices(nodes) },
      rules: { visit },
      apis: new Apis(nodes, new DurableWriter(nodes, 0), clock, 1000),
    });

  /** An API whose keys expire so many days from now. */
  async function newApi(apiId: string, days: Readonly<Record<string, number>>) {
    const client = await redis();
    await client.zadd(apiList, 0, apiId);
    await client.hset(apiKeys(apiId).head, { c: 1, L: 1000, Lf: 1000 });
    let n = 0;
    for (const [keyId, inDays] of Object.entries(days)) {
      const expires = clock.nowMs + inDays * DAY;
      await client.hset(recordKey(apiId, keyId), { p: 'x', x: expires, n: 'Ada', o: 'ada' });
      await client.zadd(apiKeys(apiId).index, ++n, keyId);
      await client.zadd(expiryIndex(apiId), 0, keyId);
    }
  }

  /** Lets a watch work until there are so many notices. */
  async function watchUntil(count: number, watch = newWatch()) {
    const end = new AbortController();
    const run = watch.run(end.signal);
    await eventually(async () => {
      await clock.pass(1000);
      return (await noticesNow()).length >= count;
    });
    end.abort();
    await clock.pass(0);
    await run;
  }

  test('are told once each, also after kills', async () => {
    await newApi('shop', { key_a: 20, key_b: 100, key_c: 0.5 });
    await watchUntil(2);
    const sent = async () => (await noticesNow()).map(({ type, data }) => [type, data.keyId, data.days]);
    expect(await sent()).toEqual([
      ['key.expiring', 'key_a', 30],
      ['key.expiring', 'key_c', 1],
    ]);
    // Killed between a notice and the index: the same is due again, and not told again.
    await (await redis()).zadd(expiryIndex('shop'), 0, 'key_a', 0, 'key_c');
    clock.nowMs += DAY;
    await watchUntil(3);
    expect((await sent()).slice(2)).toEqual([['key.expired', 'key_c', undefined]]);
    expect((await noticesNow())[0].data).toMatchObject({ apiId: 'shop', name: 'Ada', externalId: 'ada' });
  });

  test('marks of pools are told of once, also after kills', async () => {
    await newApi('shop', { key_a: 100 });
    const client = await redis();
    await client.hset(poolKey('shop', 'pool_a'), { k: 'key_a' });
    const made = {
      pool_a: '1000',
      'pool_a 80': '900 10 2',
      'key_a.d.default 80': '950 5 1 2000',
      'pool_gone 80': '1 1 1',
    };
    await client.hset(poolMarks('shop'), made);
    await watchUntil(3);
    // Killed between a notice and the marks: they are there again, and one was made anew.
    await client.hset(poolMarks('shop'), { ...made, pool_a: '2000' });
    await watchUntil(4);
    expect((await noticesNow()).map(({ type, time }) => `${type} ${time}`).sort()).toEqual([
      ...['credits.low 900', 'key.credits_exhausted 1000', 'key.credits_exhausted 2000', 'quota.low 950'],
    ]);
    expect(await client.exists(poolMarks('shop'))).toBe(0);
  });

  test('cost what is due, however many there are', async () => {
    await newApi('shop', { key_due: 1 });
    const client = await redis();
    const far = clock.nowMs + 50 * DAY;
    for (let i = 0; i < 100; i++) {
      const many = Array.from({ length: 10_000 }, (_, n) => [far, `key_${i}_${n}`]).flat();
      await client.zadd(expiryIndex('shop'), ...many);
    }
    await client.zadd(expiryIndex('shop'), 0, 'key_due');
    expect(await client.zcard(expiryIndex('shop'))).toBe(1_000_001);
    await client.config('RESETSTAT');
    const due = await dueKeys().read('shop', clock.nowMs);
    expect(due?.keys.map(({ keyId }) => keyId)).toEqual(['key_due']);
    const calls = /calls=(\d+)/;
    const stats = await client.info('commandstats');
    const callsOf = (name: string) =>
      Number(
        calls.exec(stats.split('\n').find((line) => line.startsWith(`cmdstat_${name}:`)) ?? '')?.[1] ?? 0,
      );
    expect(callsOf('zrangebyscore')).toBe(1);
    expect(callsOf('hmget')).toBe(2);
  });

  test('are told although another API is unreadable', async () => {
    await newApi('broken', { key_b: 20 });
    await (await redis()).set(apiKeys('broken').head, 'not a hash');
    await newApi('shop', { key_a: 20 });
    await watchUntil(1);
    expect((await noticesNow()).map(({ data }) => data.keyId)).toEqual(['key_a']);
  });

  test('are told although no rule can be kept to', async () => {
    await newApi('shop', { key_a: 20 });
    await (await redis()).hset(apiKeys('shop').head, { unused: DAY });
    await watchUntil(
      1,
      newWatch([30], () => Promise.reject(new Error('no audit log'))),
    );
    expect((await noticesNow()).map(({ data }) => data.keyId)).toEqual(['key_a']);
  });

  test('cost nothing while nobody wants to know', async () => {
    await (await redis()).del(webhookEndpoints);
    await newApi('shop', { key_a: 20 });
    const end = new AbortController();
    const run = newWatch().run(end.signal);
    await eventually(async () => {
      await clock.pass(1000);
      const due = await (await redis()).zscore(expiryIndex('shop'), 'key_a');
      return Number(due) > clock.nowMs;
    });
    end.abort();
    await clock.pass(0);
    await run;
    expect(await noticesNow()).toEqual([]);
    expect(await (await redis()).keys('kf:{!audit}:n:*')).toEqual([]);
  });
});

describe('verifiers that are lost', () => {
  const [CRASHED, STOPPED] = ['1', '2'].map((digit) => `verifier_${digit.repeat(20)}`) as [string, string];
  const reportOf = (id: string) => ({
    ...{ id, host: 'node-1', version: '1', protocol: 1, startedAt: 1, reportedAt: 5, keysInMemory: 0 },
    ...{ verdicts: { memory: 0, redis: 0 }, apis: [], apisNotShown: 0 },
  });
  async function report(id: string, text = JSON.stringify(reportOf(id))) {
    await (await redis()).zadd(verifierIds, 0, id);
    await (await redis()).set(verifierStatus(id), text);
  }
  const clock = new SteppedClock();
  async function watched(during: () => Promise<void>) {
    const fleet = new WatchedFleet(nodes, new FleetView(nodes));
    const watch = new FleetWatch({ fleet, notices: new Notices(nodes), clock, log });
    const end = new AbortController();
    const run = watch.run(end.signal);
    await during();
    end.abort();
    await clock.pass(2000);
    await run;
  }
  const look = async () => {
    await clock.pass(2000);
    await new Promise((resolve) => setImmediate(resolve));
  };

  test('are told once with their host, if not stopped', async () => {
    await report(CRASHED);
    await report(STOPPED);
    await watched(async () => {
      await eventually(async () => {
        await look();
        return (await (await redis()).hlen(watchedVerifiers)) === 2;
      });
      await (await redis()).del(verifierStatus(CRASHED));
      await report(STOPPED, 'stopped');
      await eventually(async () => {
        await look();
        return (await noticesNow()).length === 1;
      });
      await eventually(async () => {
        await look();
        return (await (await redis()).hlen(watchedVerifiers)) === 0;
      });
    });
    expect(await noticesNow()).toMatchObject([
      {
        type: 'verifier.lost',
        data: { verifierId: CRASHED, host: 'node-1', version: '1', lastReportedAt: 5 },
      },
    ]);
    // What it had counted is lost, so no key may be called unused since before.
    expect(Number(await (await redis()).get(usageLoss))).toBeGreaterThan(0);
  });
});

test('only a verifier that stops leaves a word', async () => {
  const fleet = await Fleet.start({ verifiers: 0 });
  const verifier = new Process('verifier/main.ts', { REDIS_URL: fleet.redisUrl });
  const ids = () => fleet.client.zrange(verifierIds, 0, '-1');
  const statusAfter = async (signal: NodeJS.Signals) => {
    const before = await ids();
    await verifier.start();
    await fleet.until(async () => (await ids()).length > before.length);
    const id = (await ids()).find((each) => !before.includes(each)) ?? '';
    await verifier.stop(signal);
    return fleet.client.get(verifierStatus(id));
  };
  expect(await statusAfter('SIGTERM')).toBe('stopped');
  expect(await statusAfter('SIGKILL')).toMatch(/^\{.*"startedAt"/);
  await fleet.stop();
});

test('counts events that the audit log lost unread', async () => {
  const outbox = new Outbox(nodes, 'me', 100, 2000);
  await outbox.hold();
  await outbox.prepare();
  const audit = new Audit({
    ...{ nodes, writer: new DurableWriter(nodes, 0), clock: systemClock, log, onCount: () => undefined },
    limits: { eventsMax: { done: 100, refused: 100 }, waitingMax: 10 },
  });
  const event = {
    time: 1,
    requestId: 'r',
    operation: 'o',
    outcome: 'OK',
    by: { address: 'a' },
    on: {},
  } as const;
  const record = (count: number) =>
    audit.recordAll(
      'done',
      Array.from({ length: count }, () => event),
    );
  await record(50);
  expect(await outbox.missed()).toBe(0);
  expect(await outbox.read(100, undefined)).toHaveLength(50);
  await record(600);
  const length = await (await redis()).xlen('kf:{!audit}:done');
  expect(await outbox.missed()).toBe(600 - length);
  expect(600 - length).toBeGreaterThan(300);
  expect(await outbox.read(1000, undefined)).toHaveLength(length);
});
