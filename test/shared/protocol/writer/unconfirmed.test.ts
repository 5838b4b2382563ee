import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Apis } from '../../../../control-plane/core/apis/apis.ts';
import { BootstrapKeys } from '../../../../control-plane/core/callers/bootstrap-keys.ts';
import { RootKeys } from '../../../../control-plane/core/callers/root-keys.ts';
import { Permissions } from '../../../../control-plane/core/callers/root-permissions.ts';
import { KeyImport } from '../../../../control-plane/core/keys/key-import.ts';
import { Keys } from '../../../../control-plane/core/keys/keys.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { RedisChangeLog } from '../../../../shared/protocol/log/change-log.ts';
import { DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import type { Run } from '../../../../shared/redis/script.ts';
import { redisConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { PATIENT } from '../../../harness/waiting.ts';

/** Writes each of which may be the one that replicas do not confirm, as when they are lost half-way through a call. */
let fleet: Fleet;
let nodes: RedisNodes;
beforeAll(async () => {
  fleet = new Fleet();
  await fleet.startRedis();
  const config = redisConfig({ REDIS_URL: fleet.redisUrl, ...PATIENT });
  nodes = new RedisNodes(config, systemClock, createLogger('control-plane', 'silent'));
});
afterAll(async () => {
  await nodes.close();
  await fleet.stop();
});
beforeEach(() => fleet.client.flushall());

/** Writes to Redis, and says of the writes to keys that fit the pattern that replicas did not confirm them. */
class ShortWriter extends DurableWriter {
  short: RegExp | undefined;

  override async send<T>(run: Run<T>, lane?: string) {
    const done = await super.send(run, lane);
    return { ...done, replicated: done.replicated && !this.short?.test(run.keys[0] ?? '') };
  }

  override async sendAll<T>(runs: readonly Run<T>[]) {
    const done = await super.sendAll(runs);
    const short = runs.some(({ keys }) => this.short?.test(keys[0] ?? ''));
    return { ...done, replicated: done.replicated && !short };
  }
}

function parts(apiAutoCreate = true) {
  const writer = new ShortWriter(nodes, 0);
  const log = new RedisChangeLog(nodes, writer, 0, () => 1);
  const limits = { leaseMs: 500, apiAutoCreate };
  const keys = new Keys({ nodes, writer, log, clock: systemClock, limits });
  const keyImport = new KeyImport({ writer, keys, clock: systemClock, limits });
  return { writer, keys, keyImport, apis: new Apis(nodes, writer, systemClock, 500) };
}

const NEW_KEY = { apiId: 'shop', byteLength: 16, meta: {}, enabled: true };
const IMPORTED = { secretHash: 'a'.repeat(43), start: '', foreign: false, meta: {}, enabled: true };
const pointers = async () => (await fleet.client.keys('kf:*')).filter((key) => /^kf:[pi]:/.test(key)).sort();
const records = async () => (await fleet.client.keys('kf:*')).filter((key) => key.includes(':k:'));
const outage = expect.objectContaining({ code: 'SERVICE_UNAVAILABLE' });

describe('a key', () => {
  test.each([
    ['the pointer of its secret', /^kf:p:/],
    ['the pointer of its id', /^kf:i:/],
    ['its record', /:head$/],
  ])('is not created if %s was not confirmed', async (_, short) => {
    const { keys, writer, apis } = parts();
    await apis.create({ name: 'Shop', apiId: 'shop' });
    writer.short = short;
    await expect(keys.create(NEW_KEY)).rejects.toEqual(outage);
    expect([await pointers(), await records()]).toEqual([[], []]);
    writer.short = undefined;
    await expect(keys.create(NEW_KEY)).resolves.toMatchObject({ keyId: expect.stringMatching(/^key_/) });
    expect((await pointers()).length).toBe(2);
  });

  test('is not created in an API that does not exist', async () => {
    const { keys } = parts(false);
    await expect(keys.create(NEW_KEY)).rejects.toEqual(expect.objectContaining({ code: 'NOT_FOUND' }));
    expect(await fleet.client.keys('*')).toEqual([]);
    await expect(parts(true).keys.create(NEW_KEY)).resolves.toBeDefined();
  });

  test('has its pointers back if an import revived it', async () => {
    const { keys, keyImport } = parts();
    const [imported] = await keyImport.run('shop', [IMPORTED]);
    const keyId = imported && 'keyId' in imported ? imported.keyId : '';
    const before = await pointers();
    expect(before).toHaveLength(2);
    await keys.forgetDeleted('shop', [{ keyId, secretHash: IMPORTED.secretHash }]);
    expect(await pointers()).toEqual(before);
    await keys.forgetDeleted('shop', [{ keyId, secretHash: 'another' }]);
    expect((await pointers()).length).toBe(1);
  });
});

describe('an import', () => {
  test.each([
    ['the pointers of secrets', /^kf:p:/],
    ['the pointers of ids', /^kf:i:/],
    ['the records', /:head$/],
  ])('is an outage if %s were not confirmed', async (_, short) => {
    const { keyImport, writer } = parts();
    writer.short = short;
    await expect(keyImport.run('shop', [IMPORTED])).rejects.toEqual(outage);
    writer.short = undefined;
    const [again] = await keyImport.run('shop', [IMPORTED]);
    expect(again).toMatchObject({ keyId: expect.stringMatching(/^key_/) });
    const [third] = await keyImport.run('shop', [IMPORTED]);
    expect(third).toEqual({ ...again, result: 'exists' });
    expect([(await pointers()).length, (await records()).length]).toEqual([2, 1]);
  });

  test('without an API takes back only what it set', async () => {
    const { keyImport } = parts(false);
    await fleet.client.set(`kf:p:${'b'.repeat(43)}`, 'other key_1');
    const both = [IMPORTED, { ...IMPORTED, secretHash: 'b'.repeat(43) }];
    await expect(keyImport.run('shop', both)).rejects.toEqual(expect.objectContaining({ code: 'NOT_FOUND' }));
    expect(await fleet.client.keys('*')).toEqual([`kf:p:${'b'.repeat(43)}`]);
    expect(await parts().keyImport.run('shop', both)).toEqual([
      { result: 'created', keyId: expect.any(String) },
      { result: 'TAKEN' },
    ]);
  });
});

test('unconfirmed writes are outages', async () => {
  const { writer, apis } = parts();
  const rootKeys = new RootKeys(nodes, writer, new BootstrapKeys([]));
  const by = { id: 'root_of_the_test', permissions: new Permissions(['*']), ancestors: [] };
  const { rootKeyId } = await rootKeys.create(by, 'n', ['*'], 1);
  writer.short = /./;
  await expect(apis.create({ name: 'Shop', apiId: 'shop' })).rejects.toEqual(outage);
  await expect(rootKeys.create(by, 'n', ['*'], 1)).rejects.toEqual(outage);
  await expect(rootKeys.setEnabled(rootKeyId, false)).rejects.toEqual(outage);
  await expect(rootKeys.setEnabled('root_none', false)).rejects.toEqual(
    expect.objectContaining({ code: 'NOT_FOUND' }),
  );
});
