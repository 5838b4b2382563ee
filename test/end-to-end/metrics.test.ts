import { Redis } from 'ioredis';
import { afterEach, expect, test } from 'vitest';
import { Fleet } from '../harness/fleet.ts';
import { metric, metricBy } from '../harness/metrics.ts';

let fleet: Fleet;
afterEach(() => fleet.stop());

test('counts every 503 once, by its reason', async () => {
  const limits = { LOOKUPS_IN_FLIGHT_MAX: '1', LOOKUPS_QUEUED_MAX: '1', REQUESTS_IN_FLIGHT_MAX: '5' };
  fleet = await Fleet.start({ verifiers: 0 });
  const keys: string[] = [];
  for (let i = 0; i < 8; i++) keys.push((await fleet.ok('keys.createKey', { apiId: 'shop' })).key);
  const { adminAddress } = await fleet.addVerifier({ API_IDS: 'shop', LOOKUP_WAIT_MS: '300', ...limits });
  const undecided = () => metricBy(adminAddress, 'keyfence_undecided_total', 'reason');
  expect(await undecided()).toEqual({ crowded: 0, shed: 0, slow: 0, silent: 0, held: 0, redis: 0 });

  // Two look-ups wait, three find no place to wait, and there is no room for more requests.
  fleet.redis.process.kill('SIGSTOP');
  const answers = await Promise.all(keys.map((key) => fleet.verifyOnce(key)));
  fleet.redis.process.kill('SIGCONT');
  expect(answers.map(({ status }) => status)).toEqual(keys.map(() => 503));
  const first = await undecided();
  expect(Object.values(first).reduce((a, b) => a + b)).toBe(keys.length);
  expect(first['silent']).toBeGreaterThan(0);
  expect(first['slow']).toBe(0);
  expect(first['shed']).toBeGreaterThan(0);

  for (const key of keys) expect(await fleet.verdict(key)).toBe('VALID');
  await fleet.redis.stop();
  const before = await undecided();
  await fleet.until(async () => (await fleet.verifyOnce(keys[0] ?? '')).status === 503);
  const after = await undecided();
  expect(after['redis']).toBe((before['redis'] ?? 0) + 1);
});

test('is not live without a lease', async () => {
  fleet = await Fleet.start({ env: { API_IDS: 'shop', STATUS_PERIOD_MS: '100' } });
  const { adminAddress } = fleet.verifiers[0] ?? {};
  const live = () => metric(adminAddress, 'keyfence_follower_live{api_id="shop"}');
  const left = async () =>
    (await metricBy(adminAddress, 'keyfence_lease_remaining_seconds', 'api_id'))['shop'];
  // An API that does not exist yet is no outage.
  expect(await live()).toBe(1);
  expect(await left()).toBeUndefined();
  const state = async () => (await fleet.ok('fleet.listVerifiers')).verifiers[0]?.apis[0].state;
  await fleet.until(async () => (await state()) === 'live');
  await fleet.ok('keys.createKey', { apiId: 'shop' });
  await fleet.until(async () => ((await left()) ?? 0) > 0);
  await fleet.until(async () => (await live()) === 1);
  fleet.redis.process.kill('SIGSTOP');
  await fleet.until(async () => (await live()) === 0);
  expect(await left()).toBe(0);
  fleet.redis.process.kill('SIGCONT');
  await fleet.until(async () => (await live()) === 1);
});

test('counts failed writes and shows long waits', async () => {
  fleet = await Fleet.start({ env: { API_IDS: 'shop' } });
  const { adminAddress } = fleet.controlPlanes[0] ?? {};
  const gauge = (name: string) => metric(adminAddress, name);
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  expect(await gauge('keyfence_fence_oldest_seconds')).toBe(0);
  expect(await gauge('keyfence_redis_reachable')).toBe(1);
  const writes = await metricBy(adminAddress, 'keyfence_writes_total', 'result');
  expect(writes).toMatchObject({ short: 0, failed: 0 });

  fleet.redis.process.kill('SIGKILL');
  expect((await fleet.admin('keys.createKey', { apiId: 'shop' })).status).toBe(503);
  const later = await metricBy(adminAddress, 'keyfence_writes_total', 'result');
  expect(later['failed']).toBeGreaterThan(0);
  expect(later['replicated']).toBe(writes['replicated']);

  await fleet.startRedis();
  await fleet.until(async () => (await fleet.admin('keys.getKey', { keyId })).status === 200);
  // A member that nobody is behind: the change waits for it until its lease would be over.
  const redis = new Redis({ path: fleet.redisUrl.replace('unix://', '') });
  await redis.zadd('kf:{shop}:members', 0, 'crashed');
  const held = fleet.ok('keys.updateKey', { keyId, enabled: false });
  await fleet.until(async () => (await gauge('keyfence_fence_oldest_seconds')) > 0.5);
  expect((await held).propagation.by).toBe('fence');
  expect(await gauge('keyfence_fence_oldest_seconds')).toBe(0);
  redis.disconnect();
});

test('counts credits exchanged, held and recalled', async () => {
  fleet = await Fleet.start({ verifiers: 2, env: { API_IDS: 'shop', LOOKUP_WAIT_MS: '5000' } });
  const [first = ''] = fleet.verifiers.map(({ adminAddress }) => adminAddress);
  const gauge = (at: string, name: string) => metric(at, `keyfence_${name}`);
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 1000 });
  const spend = async (at: number, cost = 1) =>
    (await fleet.post(`${fleet.verifiers[at]?.address}/v1/keys.verifyKey`, { key, remaining: { cost } }))
      .body;
  await fleet.until(async () => {
    for (let i = 0; i < 20; i++) await spend(0);
    return (await gauge(first, 'credits_held')) > 0;
  });
  expect(await gauge(first, 'credit_pools')).toBe(1);
  expect(await gauge(first, 'credit_exchanges_total')).toBeGreaterThan(0);
  expect(await gauge(first, 'credit_exchanges_failed_total')).toBe(0);
  // All that is left: who holds some of it must give it back.
  await fleet.until(async () => {
    await fleet.ok('keys.updateRemaining', { keyId, op: 'increment', value: 1000 });
    for (let i = 0; i < 20; i++) await spend(0);
    const { remaining } = await fleet.ok('keys.getKey', { keyId });
    await spend(1, remaining);
    return (await gauge(first, 'credit_recalls_total')) > 0;
  });
});

test('the control plane measures in seconds', async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  const startedAt = performance.now();
  await fleet.ok('keys.createKey', { apiId: 'shop' });
  const tookS = (performance.now() - startedAt) / 1000;
  const series = 'keyfence_control_plane_request_duration_seconds_sum';
  const labels = 'operation="/v1/keys.createKey",status="200"';
  const sum = await metric(fleet.controlPlanes[0]?.adminAddress, `${series}{${labels}}`);
  expect(sum).toBeGreaterThan(0);
  expect(sum).toBeLessThan(tookS);
});
