import { afterAll, beforeAll, test as each, expect } from 'vitest';
import { poolKey, recordKey, windowKey } from '../../../../shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { Receiver } from './receiver.ts';

/** At once: each waits for what the control plane looks at every second. */
const test = each.concurrent;

/** Credits and quotas that are nearly used up, at two verifiers without slices. */
let fleet: Fleet;
let receiver: Receiver;

beforeAll(async () => {
  fleet = await Fleet.start({
    verifiers: 2,
    env: { WEBHOOK_NETWORKS: '127.0.0.0/8', LOOKUP_WAIT_MS: '5000', CREDITS_SLICE_MS: '0' },
  });
  receiver = await Receiver.start();
  const input = { url: receiver.url, events: ['credits.*', 'quota.*'] };
  ({ secret: receiver.secret } = await fleet.ok('webhooks.createEndpoint', input));
});
afterAll(async () => {
  await receiver.stop();
  await fleet.stop();
});

const newKey = (fields: object): Promise<{ keyId: string; key: string }> =>
  fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const use = async (key: string, uses: number) => {
  for (let i = 0; i < uses; i++) expect(await fleet.verdict(key, { at: i % 2 })).toBe('VALID');
};
/**
 * The thresholds of a key or an identity of which the endpoint was told, once it was told of all that was passed. A verifier
 * may tell of its last uses later: so many are waited for.
 */
async function told(id: string, atLeast = 0): Promise<number[]> {
  const last = await newKey({ remaining: 2, thresholds: [50] });
  await use(last.key, 1);
  await fleet.until(async () => {
    const { waiting } = (await fleet.ok('webhooks.listEndpoints')).endpoints[0];
    return eventsOf(last.keyId).length === 1 && waiting === 0 && eventsOf(id).length >= atLeast;
  });
  return eventsOf(id).map(({ data }) => data.threshold);
}
const eventsOf = (id: string) =>
  receiver.received.filter(({ data }) => data.keyId === id || data.identityId === id);
const poolOf = async (keyId: string) =>
  poolKey('shop', (await fleet.client.hget(recordKey('shop', keyId), 'q')) ?? '');

test('credits are told of once for each threshold', async () => {
  const { keyId, key } = await newKey({ remaining: 10, thresholds: [50, 80, 90], name: 'ada' });
  await use(key, 4);
  expect(await told(keyId)).toEqual([]);
  await use(key, 1);
  expect(await told(keyId, 1)).toEqual([50]);
  await use(key, 4);
  expect((await told(keyId, 3)).sort()).toEqual([50, 80, 90]);
  await use(key, 1);
  expect(await told(keyId)).toHaveLength(3);
  const [first] = eventsOf(keyId);
  expect(first).toMatchObject({
    type: 'credits.low',
    data: { apiId: 'shop', name: 'ada', credits: 10, remaining: 5 },
  });
  expect((await fleet.ok('keys.getKey', { keyId })).thresholds).toEqual([50, 80, 90]);
});

test('an increment above a threshold begins it anew', async () => {
  const { keyId, key } = await newKey({ remaining: 10, thresholds: [50, 80] });
  await use(key, 8);
  expect((await told(keyId, 2)).sort()).toEqual([50, 80]);
  const add = (value: number) => fleet.ok('keys.updateRemaining', { keyId, op: 'increment', value });
  // Half of them are still used.
  await add(3);
  await use(key, 1);
  expect(await told(keyId)).toHaveLength(2);
  await use(key, 2);
  expect((await told(keyId, 3)).slice(2)).toEqual([80]);
  // 20 are left, and are the new whole.
  await add(18);
  await use(key, 9);
  expect(await told(keyId)).toHaveLength(3);
  await use(key, 1);
  expect((await told(keyId, 4)).slice(3)).toEqual([50]);
  await fleet.ok('keys.updateRemaining', { keyId, op: 'set', value: 2 });
  await use(key, 1);
  expect((await told(keyId, 5)).slice(4)).toEqual([50]);
});

test('a refill begins them anew, and sets the whole', async () => {
  const refill = { interval: 'daily', amount: 4 };
  const { keyId, key } = await newKey({ remaining: 2, refill, thresholds: [50] });
  await use(key, 1);
  expect(await told(keyId, 1)).toEqual([50]);
  await fleet.client.hset(await poolOf(keyId), 't', 1);
  await use(key, 1);
  expect(await told(keyId, 1)).toEqual([50]);
  await use(key, 1);
  expect(await told(keyId)).toEqual([50, 50]);
});

test('thresholds change like a refill, and follow a rotation', async () => {
  const { keyId, key } = await newKey({ remaining: 10 });
  await use(key, 5);
  await fleet.ok('keys.updateKey', { keyId, thresholds: [50] });
  await use(key, 2);
  // Per cent of what was left.
  expect(await told(keyId)).toEqual([]);
  const next = await fleet.ok('keys.rerollKey', { keyId, expiration: 60_000 });
  await use(next.key, 1);
  expect([await told(keyId), await told(next.keyId)]).toEqual([[50], [50]]);
  await fleet.ok('keys.updateKey', { keyId, thresholds: null, remaining: 2 });
  await use(key, 1);
  expect(await told(keyId, 1)).toEqual([50]);
  expect(await fleet.ok('keys.getKey', { keyId })).not.toHaveProperty('thresholds');
});

test('slices that verifiers hold are not used yet', async () => {
  await fleet.addVerifier({ CREDITS_SLICE_MS: '60000' });
  const { keyId, key } = await newKey({ remaining: 1000, thresholds: [5] });
  const useMany = async (uses: number) => {
    const codes = await Promise.all(Array.from({ length: uses }, () => fleet.verdict(key, { at: 2 })));
    expect(new Set(codes)).toEqual(new Set(['VALID']));
  };
  await useMany(40);
  await useMany(5);
  expect(await told(keyId)).toEqual([]);
  await useMany(10);
  await fleet.until(async () => (await told(keyId)).length === 1);
  const [event] = eventsOf(keyId);
  expect(event?.data.remaining).toBeGreaterThan(940);
});

test('quotas are told of once a period', async () => {
  const quota = { limit: 4, interval: 'month', thresholds: [50] };
  const { keyId, key } = await newKey({ ratelimit: quota });
  await use(key, 4);
  expect(await told(keyId, 1)).toEqual([50]);
  const [event] = eventsOf(keyId);
  expect(event).toMatchObject({
    type: 'quota.low',
    data: { apiId: 'shop', threshold: 50, quota: { name: 'default', limit: 4, remaining: 2 } },
  });
  expect(event?.data.quota.reset).toBeGreaterThan(Date.now());
  // Another period.
  await fleet.client.hset(windowKey('shop', `${keyId}.m.default`), 'n', 1000);
  await fleet.until(async () => (await fleet.verdict(key)) === 'VALID');
  await use(key, 1);
  expect(await told(keyId)).toEqual([50, 50]);
});

test('those of identities and roles, too', async () => {
  const quota = (name: string, more: object = {}) => ({
    ...{ name, limit: 2, interval: 'day', autoApply: true, thresholds: [50] },
    ...more,
  });
  const ratelimits = [quota('ofRole'), quota('shared', { per: 'identity' })];
  await fleet.ok('permissions.createRole', { name: 'pro', ratelimits });
  const { identityId } = await fleet.ok('identities.createIdentity', {
    ...{ externalId: 'ada', ratelimits: [quota('own')], roles: ['pro'] },
  });
  const { keyId, key } = await newKey({ externalId: 'ada' });
  await use(key, 1);
  expect([await told(keyId), await told(identityId)]).toEqual([[50], [50, 50]]);
  expect(eventsOf(keyId)[0]?.data.quota.name).toBe('ofRole');
  expect(eventsOf(identityId)[0]?.data.externalId).toBe('ada');
});

test('credits of an identity have theirs', async () => {
  const credits = { remaining: 2, thresholds: [50] };
  const { identityId } = await fleet.ok('identities.createIdentity', { externalId: 'bob', credits });
  const { key } = await newKey({ externalId: 'bob' });
  await use(key, 1);
  expect(await told(identityId)).toEqual([50]);
  const [event] = eventsOf(identityId);
  const passed = { threshold: 50, credits: 2, remaining: 1, passedAt: expect.any(Number) };
  expect(event?.data).toEqual({ identityId, externalId: 'bob', ...passed });
});

test('names the field of bad thresholds', async () => {
  const refusal = async (fields: object) => {
    const { status, body } = await fleet.admin('keys.createKey', { apiId: 'shop', ...fields });
    expect(status).toBe(400);
    return body.message ?? body.error.message;
  };
  expect(await refusal({ remaining: 1, thresholds: [80, 80] })).toBe(
    'thresholds: must be in ascending order, each once',
  );
  expect(await refusal({ thresholds: [80] })).toBe('thresholds: needs remaining; give both');
  expect(await refusal({ remaining: 1, thresholds: [100] })).toContain('thresholds.0');
  const ratelimit = { limit: 1, duration: 1000, thresholds: [80] };
  expect(await refusal({ ratelimit })).toBe('ratelimit.thresholds: allowed only with interval');
  const falling = { limit: 1, interval: 'day', thresholds: [95, 80] };
  expect(await refusal({ ratelimit: falling })).toBe(
    'ratelimit.thresholds: must be in ascending order, each once',
  );
});
