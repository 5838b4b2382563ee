import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../../../shared/process/clock.ts';
import { INSPECTIONS_MS } from '../../../../shared/protocol/writer/durability.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';

/** Inspects fifty times as often. */
const often: Clock = {
  ...systemClock,
  after: (delayMs, run) => systemClock.after(delayMs === INSPECTIONS_MS ? delayMs / 50 : delayMs, run),
};
let fleet: Fleet;
let keyId: string;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, clock: often });
  fleet.client.on('error', () => undefined); // one test stops the server
  ({ keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' }));
});
afterEach(async () => {
  await fleet.client.config(
    'SET',
    'appendonly',
    'yes',
    'appendfsync',
    'always',
    'no-appendfsync-on-rewrite',
    'no',
  );
  await fleet.client.config('SET', 'maxmemory', '0', 'maxmemory-policy', 'noeviction');
  await fleet.client.config('RESETSTAT');
});
afterAll(() => fleet.stop());

const durable = async () =>
  (await fleet.ok('keys.updateKey', { keyId, enabled: true })).propagation.durable as boolean;
const gauge = (name: string) => metric(fleet.controlPlanes[0]?.adminAddress, name);

test.each([
  ['appendonly', 'no', 'yes'],
  ['appendfsync', 'everysec', 'always'],
  ['no-appendfsync-on-rewrite', 'yes', 'no'],
])('%s %s: is no durable write until set back', async (name, wrong, right) => {
  expect(await durable()).toBe(true);
  await fleet.client.config('SET', name, wrong);
  expect(await durable()).toBe(false);
  const propagation = await fleet.ok('keys.getPropagation', { keyId, sequence: '1' });
  expect(propagation.propagation.durable).toBe(false);
  await fleet.until(async () => (await gauge('keyfence_durable')) === 0);
  expect(fleet.logged.some((line) => line.includes('not durable: ') && line.includes(name))).toBe(true);
  await fleet.client.config('SET', name, right);
  if (name === 'appendonly') await fleet.until(durable);
  expect(await durable()).toBe(true);
  await fleet.until(async () => (await gauge('keyfence_durable')) === 1);
});

test('relies on an append-only file once complete', async () => {
  const slow = async (microseconds: number) =>
    fleet.client.config('SET', 'rdb-key-save-delay', String(microseconds));
  const isRewriting = async () =>
    (await fleet.client.info('persistence')).includes('aof_rewrite_in_progress:1');
  try {
    // Without a file from before, and with one.
    for (const _ of [1, 2]) {
      await fleet.client.config('SET', 'appendonly', 'no');
      expect(await durable()).toBe(false);
      await slow(60_000_000);
      await fleet.client.config('SET', 'appendonly', 'yes');
      expect(await isRewriting()).toBe(true);
      expect(await durable()).toBe(false);
      await slow(0);
      await fleet.client.config('SET', 'appendonly', 'no');
      await fleet.client.config('SET', 'appendonly', 'yes');
      await fleet.until(durable);
    }
    await slow(60_000_000);
    await fleet.client.bgrewriteaof();
    expect(await isRewriting()).toBe(true);
    expect(await durable()).toBe(true);
  } finally {
    await slow(0);
    await fleet.client.config('SET', 'appendonly', 'no'); // ends the rewriting
    await fleet.client.config('SET', 'appendonly', 'yes');
    await fleet.until(durable);
  }
});

test('a policy that throws keys away is not durable', async () => {
  await fleet.client.config('SET', 'maxmemory', '1gb', 'maxmemory-policy', 'allkeys-lru');
  expect(await durable()).toBe(false);
  await fleet.client.config('SET', 'maxmemory-policy', 'noeviction');
  expect(await durable()).toBe(true);
});

test('counts thrown away keys, ending the claim', async () => {
  const filling = fleet.client.pipeline();
  for (let i = 0; i < 2000; i++) filling.set(`kf:{filler}:${i}`, 'x'.repeat(1000));
  await filling.exec();
  const used = Number(/used_memory:(\d+)/.exec(await fleet.client.info('memory'))?.[1]);
  await fleet.client.config('SET', 'maxmemory-policy', 'allkeys-random', 'maxmemory', String(used - 500_000));
  const evicted = async () => Number(/evicted_keys:(\d+)/.exec(await fleet.client.info('stats'))?.[1]);
  await fleet.until(async () => {
    await fleet.client.set('kf:{filler}:more', 'x');
    return (await evicted()) > 0;
  });
  // Too late: what is gone is gone.
  await fleet.client.config('SET', 'maxmemory', '0', 'maxmemory-policy', 'noeviction');
  ({ keyId } = await fleet.ok('keys.createKey', { apiId: 'shop-2' }));
  expect(await durable()).toBe(false);
  await fleet.until(async () => (await gauge('keyfence_redis_evicted_keys')) > 0);
  expect(fleet.logged.some((line) => /"level":50.*has evicted \d+ keys/.test(line))).toBe(true);
  await fleet.client.config('RESETSTAT');
  expect(await durable()).toBe(true);
});

test('many changes share a look, begun after them', async () => {
  const before = Number(
    /cmdstat_config\|get:calls=(\d+)/.exec(await fleet.client.info('commandstats'))?.[1] ?? 0,
  );
  await Promise.all(Array.from({ length: 100 }, () => durable()));
  const after = Number(
    /cmdstat_config\|get:calls=(\d+)/.exec(await fleet.client.info('commandstats'))?.[1] ?? 0,
  );
  expect(after - before).toBeLessThan(60);
});

test('claims nothing for a user who may not ask', async () => {
  await fleet.client.call('ACL', 'SETUSER', 'blind', 'on', '>pw', '~*', '&*', '+@all', '-config');
  const at = fleet.controlPlanes.length;
  const { address } = await fleet.addControlPlane({ REDIS_USERNAME: 'blind', REDIS_PASSWORD: 'pw' });
  expect(address).toBeDefined();
  const { propagation } = await fleet.ok('keys.updateKey', { keyId, name: 'x' }, { at });
  expect(propagation.durable).toBe(false);
  expect(fleet.logged.some((line) => /CONFIG GET: NOPERM/.test(line))).toBe(true);
});

test('claims nothing while Redis does not answer', async () => {
  await fleet.until(async () => (await gauge('keyfence_durable')) === 1);
  expect(await gauge('keyfence_redis_reachable')).toBe(1);
  await fleet.redis.stop();
  await fleet.until(async () => (await gauge('keyfence_redis_reachable')) === 0);
  expect(await gauge('keyfence_durable')).toBe(0);
  await fleet.startRedis();
  await fleet.until(async () => (await gauge('keyfence_redis_reachable')) === 1);
  await fleet.until(async () => (await gauge('keyfence_durable')) === 1);
});
