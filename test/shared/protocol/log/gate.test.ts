import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Apis } from '../../../../control-plane/core/apis/apis.ts';
import { KeyImport } from '../../../../control-plane/core/keys/key-import.ts';
import { Keys } from '../../../../control-plane/core/keys/keys.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { RedisDirectory } from '../../../../shared/protocol/follower/session.ts';
import { RedisChangeLog } from '../../../../shared/protocol/log/change-log.ts';
import type { Write } from '../../../../shared/protocol/log/change-log-port.ts';
import { DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { PROTOCOL } from '../../../../shared/protocol/records/protocol.ts';
import { Fence } from '../../../../shared/protocol/writer/fence.ts';
import { RedisSweepStore } from '../../../../shared/protocol/writer/sweep-store.ts';
import { ChangeWriter } from '../../../../shared/protocol/writer/writer.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import { apiKeys, idPointer, secretPointer } from '../../../../shared/redis/redis-keys.ts';
import { redisConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { PATIENT } from '../../../harness/waiting.ts';

/** A write that needs what older verifiers do not obey, at real Redis. */
let fleet: Fleet;
let redis: Redis;
let nodes: RedisNodes;
beforeAll(async () => {
  fleet = new Fleet();
  await fleet.startRedis();
  redis = new Redis(fleet.redisUrl);
  const config = redisConfig({ REDIS_URL: fleet.redisUrl, ...PATIENT });
  nodes = new RedisNodes(config, systemClock, createLogger('control-plane', 'silent'));
});
afterAll(async () => {
  redis.disconnect();
  await nodes.close();
  await fleet.stop();
});
beforeEach(() => redis.flushall());

const nothing = () => undefined;
function parts() {
  const writer = new DurableWriter(nodes, 0);
  const log = new RedisChangeLog(nodes, writer, 0, () => 1);
  const limits = { leaseMs: 500, apiAutoCreate: true };
  const keys = new Keys({ nodes, writer, log, clock: systemClock, limits });
  const apis = new Apis(nodes, writer, systemClock, 500);
  const events = { ended: nothing, killed: nothing, reaped: nothing, rewritten: nothing };
  const changeWriter = new ChangeWriter({
    log,
    fence: new Fence(log, systemClock, 0, events),
    clock: systemClock,
    limits: {
      ...{ fenceWaitMs: 1000, pending: { changesMax: 9, stopsMax: 9 }, replicated: false },
      batch: { partMax: 2, periodMs: 0, giveWayMs: 1, lagMax: 100 },
    },
    durable: () => true,
    events,
  });
  return {
    ...{ log, keys, apis, changeWriter },
    keyImport: new KeyImport({ writer, keys, clock: systemClock, limits }),
    sweep: new RedisSweepStore(nodes, writer, keys, () => Date.now()),
    session: (apiId: string) => new RedisDirectory(nodes, 0, systemClock).open(apiId),
  };
}

const NEW_KEY = { apiId: 'shop', byteLength: 16, meta: {}, enabled: true };
const { head, members } = apiKeys('shop');
const update = (keyId: string, needs = 1): Write => ({
  ...{ apiId: 'shop', operation: 'update', keyId, fields: { n: 'Ada' } },
  needs,
});
const everything = async () => {
  const names = (await redis.keys('*')).sort();
  return Promise.all(names.map(async (name) => [name, (await redis.dump(name))?.toString()]));
};

describe('a write that needs a later protocol', () => {
  test('is refused, naming verifiers that are older', async () => {
    const { keys, changeWriter } = parts();
    const { keyId } = await keys.create(NEW_KEY);
    await redis.zadd(members, 0, 'old one', -7, 'killed', 0, '2.new', 0, '99.newer', 0, '1.old');
    const before = await everything();
    await expect(changeWriter.apply(update(keyId, 2))).rejects.toMatchObject({
      code: 'VERIFIERS_TOO_OLD',
      status: 409,
      message: expect.stringContaining('registered as killed, 1.old, old one; fleet.listVerifiers'),
    });
    expect(await everything()).toEqual(before);
    await redis.zadd(members, ...Array.from({ length: 12 }, (_, i) => [0, `m${10 + i}`]).flat());
    await expect(changeWriter.apply(update(keyId, 2))).rejects.toThrow(/m17 and 5 more;/);
    expect((await changeWriter.apply(update(keyId), 0))?.sequence).toBe(1);
  });

  test('raises what the API needs, by the change', async () => {
    const { keys, log } = parts();
    const { keyId } = await keys.create(NEW_KEY);
    expect(await log.write(update(keyId, 1))).toMatchObject({ status: 'OK', sequence: 1 });
    await redis.zadd(members, 0, '2.new', 0, '10.newer');
    expect(await redis.hget(head, 'P')).toBeNull();
    expect(await log.write(update(keyId, 2))).toMatchObject({ status: 'OK', sequence: 2 });
    expect(await redis.hget(head, 'P')).toBe('2');
    expect(await log.write({ ...update(keyId), condition: '' })).toMatchObject({ sequence: 3 });
    expect(await redis.hget(head, 'P')).toBe('2');
    expect(await log.write(update(keyId, 3))).toMatchObject({
      status: 'TOO_OLD',
      needs: 3,
      names: ['2.new'],
    });
  });

  test('is refused key by key among many', async () => {
    const { keys, changeWriter } = parts();
    const ids = [await keys.create(NEW_KEY), await keys.create(NEW_KEY)].map(({ keyId }) => keyId);
    const [one = '', two = ''] = ids;
    await redis.zadd(members, 0, 'old one');
    const writes = [update(one, 2), update(two), update('nobody')] as const;
    const { outcomes: applied, propagation } = await changeWriter.applyAll(writes, 0);
    expect(applied).toMatchObject([
      { keyId: one, failure: { code: 'VERIFIERS_TOO_OLD' } },
      { keyId: two, sequence: 1 },
      { keyId: 'nobody', failure: { code: 'NOT_FOUND', message: 'key nobody not found' } },
    ]);
    expect(propagation).toMatchObject({ state: 'pending', sequence: 1 });
    expect(await redis.hget(head, 'P')).toBeNull();
  });

  test('raises nothing where it is refused', async () => {
    const { keys, log } = parts();
    const { keyId } = await keys.create(NEW_KEY);
    expect(await log.write(update('nobody', 2))).toEqual({ status: 'NOT_FOUND' });
    expect(await log.write({ ...update(keyId, 2), condition: 'another' })).toMatchObject({
      status: 'CONFLICT',
    });
    expect(await redis.hget(head, 'P')).toBeNull();
  });
});

test('fields of a new key say what they need', async () => {
  const { keys, keyImport } = parts();
  await keys.create(NEW_KEY);
  await redis.zadd(members, 0, '1.old');
  const allowedOrigins = ['https://a.example'];
  const old = { code: 'VERIFIERS_TOO_OLD', message: expect.stringContaining('protocol 2') };
  await expect(keys.create({ ...NEW_KEY, allowedOrigins })).rejects.toMatchObject(old);
  const imported = { secretHash: 'a', start: '', foreign: true, enabled: true, meta: {}, allowedOrigins };
  expect((await keyImport.run('shop', [imported]))[0]).toMatchObject({
    result: 'TOO_OLD',
    refusal: { status: 'TOO_OLD', needs: 2 },
  });
  expect(await redis.hget(head, 'P')).toBeNull();
});

describe('the creation of a key that needs a later protocol', () => {
  test('is refused without leaving even the API', async () => {
    const { keys } = parts();
    await redis.zadd(members, 0, 'old one');
    await expect(keys.create({ ...NEW_KEY, needs: 2 })).rejects.toMatchObject({
      code: 'VERIFIERS_TOO_OLD',
      message: expect.stringContaining(
        'protocol 2, and api shop is followed by older ones, registered as old one;',
      ),
    });
    expect((await redis.keys('*')).sort()).toEqual(['kf:{!apis}:ids', members].sort());
    await keys.create(NEW_KEY);
    expect(await redis.hget(head, 'P')).toBeNull();
  });

  test('raises what the API needs before its change', async () => {
    const { apis, keys, log } = parts();
    await keys.create(NEW_KEY);
    expect(await apis.get('shop')).not.toHaveProperty('protocol');
    const { keyId } = await keys.create({ ...NEW_KEY, needs: 2 });
    expect(await redis.hmget(head, 's', 'P', 'n', 'Lf')).toEqual([null, '2', '2', '500']);
    expect(await log.write(update(keyId))).toMatchObject({ status: 'OK', sequence: 1 });
    await keys.create({ ...NEW_KEY, needs: 3 });
    expect(await redis.hget(head, 'P')).toBe('3');
    expect(await apis.get('shop')).toMatchObject({ protocol: 3 });
  });

  test('is refused one by one in an import', async () => {
    const { keyImport } = parts();
    const key = (secretHash: string, needs?: number) => ({
      ...{ secretHash, start: '', foreign: false, enabled: true },
      ...(needs === undefined ? {} : { needs }),
    });
    await redis.zadd(members, 0, 'old one');
    const wanted = [key('a'), key('b', 2), key('c')];
    const created = { result: 'created', keyId: expect.any(String) };
    const refusal = { status: 'TOO_OLD', needs: 2, followers: 1, names: ['old one'] };
    const first = await keyImport.run('shop', wanted);
    expect(first).toEqual([created, { result: 'TOO_OLD', refusal }, created]);
    expect(await redis.exists(secretPointer('a'), secretPointer('b'), secretPointer('c'))).toBe(2);
    const ids = (await redis.keys(idPointer('*'))).length;
    expect(ids).toBe(2);
    await redis.zrem(members, 'old one');
    expect(await keyImport.run('shop', wanted)).toEqual([
      { ...first[0], result: 'exists' },
      created,
      { ...first[2], result: 'exists' },
    ]);
    expect(await redis.hget(head, 'P')).toBe('2');
  });
});

describe('in an API that needs a later protocol', () => {
  test('an old verifier cannot register, knowing why', async () => {
    const { keys, session } = parts();
    await keys.create({ ...NEW_KEY, needs: PROTOCOL + 1 });
    const one = await session('shop');
    for (const name of ['m', `${PROTOCOL}.m`])
      await expect(one.register(name, 'n')).rejects.toMatchObject({
        code: 'SERVICE_UNAVAILABLE',
        message: `this verifier is too old: it speaks protocol ${PROTOCOL}, and api shop has keys that need ${PROTOCOL + 1}; upgrade it`,
      });
    expect(await redis.exists(members)).toBe(0);
    expect(await one.register(`${PROTOCOL + 1}.m`, 'n')).toMatchObject({ nonce: 'n', sequence: 0 });
    expect(await one.register('100.m', 'n')).toMatchObject({ sequence: 0 });
    expect(await redis.zrange(members, '0', '-1')).toEqual(['100.m', `${PROTOCOL + 1}.m`]);
  });

  test('an old verifier gets no lease and no record', async () => {
    const { keys, log, session } = parts();
    const { keyId } = await keys.create({ ...NEW_KEY, needs: 2 });
    await log.write(update(keyId));
    await redis.zadd(members, 0, 'm', 0, '1.m', 0, '2.m');
    const one = await session('shop');
    const [, creations = ''] = await redis.hmget(head, 'n', 'g');
    const sync = (member: string) =>
      one.sync({ member, position: 0, hash: '', creations: creations ?? '', nonce: 'n', keyId });
    for (const member of ['m', '1.m']) {
      expect(await sync(member)).toMatchObject({ status: 'NOREG', leaseMs: 0, record: [] });
    }
    expect(await sync('2.m')).toMatchObject({ status: 'OK', leaseMs: 500, sequence: 1 });
  });

  test('fences and sweeps go by the sequence alone', async () => {
    const { keys, log, sweep } = parts();
    const { keyId } = await keys.create({ ...NEW_KEY, needs: 2 });
    const written = await log.write(update(keyId));
    if (written.status !== 'OK') throw new Error(written.status);
    await redis.zadd(members, 0, '2.behind', 1, '2.there', 5, '2.beyond');
    const { sequence, hash } = written;
    const change = { apiId: 'shop', sequence, hash, keyId, replicated: false, names: 9 };
    expect(await log.check(change)).toMatchObject({ state: 'INTACT', names: ['2.behind', '2.beyond'] });
    expect(await log.close('shop', written)).toMatchObject({
      state: 'INTACT',
      removed: ['2.behind'],
      killed: [{ name: '2.beyond' }],
    });
    expect(await sweep.head('shop')).toMatchObject({ sequence: 1, members: 2 });
    await redis.zadd(members, 0, '2.behind');
    expect(await log.lag('shop')).toBe(1);
    const noop = { apiId: 'shop', operation: 'noop', keyId: '', fields: {} } as const;
    expect(await log.write({ ...noop, condition: '0' })).toMatchObject({ status: 'CONFLICT' });
    expect(await log.write({ ...noop, condition: '1' })).toMatchObject({ sequence: 2 });
  });

  test('nothing of it is left for another of its id', async () => {
    const { apis, keys, log, sweep } = parts();
    await keys.create({ ...NEW_KEY, needs: 2 });
    const whole = { apiId: 'shop', operation: 'api-deleted', keyId: '', fields: {} } as const;
    expect(await log.write(whole)).toMatchObject({ status: 'OK' });
    while (await sweep.removeKeys('shop'));
    expect(await sweep.forget('shop')).toBe(true);
    await apis.create({ name: 'Shop', apiId: 'shop' });
    await redis.zadd(members, 0, 'old one');
    await keys.create(NEW_KEY);
    expect(await redis.hget(head, 'P')).toBeNull();
  });
});
