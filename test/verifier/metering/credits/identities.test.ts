import { afterAll, beforeAll, expect, test } from 'vitest';
import { protocolFor } from '../../../../shared/protocol/records/protocol.ts';
import { poolKey, recordKey, SHARED_LOG } from '../../../../shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { Process } from '../../../harness/processes.ts';

/** Credits that all keys of an identity share, at two verifiers and over two APIs. */
let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env: { LOOKUP_WAIT_MS: '5000' } });
});
afterAll(() => fleet.stop());

const createIdentity = (externalId: string, fields: object): Promise<{ identityId: string }> =>
  fleet.ok('identities.createIdentity', { externalId, ...fields });
const createKey = (fields: object): Promise<{ key: string; keyId: string }> =>
  fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const creditsOf = async (externalId: string) =>
  (await fleet.ok('identities.getIdentity', { externalId })).credits;
const update = (externalId: string, op: string, value: number | null, more: object = {}) =>
  fleet.ok('identities.updateCredits', { externalId, op, value, ...more });
/** How often each verdict came, of so many questions about these keys at both verifiers, so many of them at once. */
async function flood(keys: readonly string[], questions: number, atOnce = 20) {
  const counts: Record<string, number> = {};
  let next = 0;
  const ask = async () => {
    while (next < questions) {
      const i = next++;
      const code = await fleet.verdict(keys[i % keys.length] ?? '', { at: (i >> 1) % 2 });
      counts[code] = (counts[code] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, ask));
  return counts;
}

test('keys of all APIs share them, and never use more', async () => {
  await createIdentity('ada', { credits: { remaining: 300 } });
  const keys = await Promise.all(
    ['shop', 'billing', 'billing'].map((apiId) => createKey({ apiId, externalId: 'ada' })),
  );
  const own = await createKey({ externalId: 'ada', remaining: 2 });
  const all = keys.map(({ key }) => key);
  expect(await flood(all, 1500, 60)).toEqual({ VALID: 300, USAGE_EXCEEDED: 1200 });
  expect(await creditsOf('ada')).toEqual({ remaining: 0 });
  // Its own credits are another matter.
  expect(await flood([own.key], 4, 1)).toEqual({ VALID: 2, USAGE_EXCEEDED: 2 });
  const [first] = keys;
  const view = await fleet.ok('keys.getKey', { keyId: first?.keyId });
  expect(view).not.toHaveProperty('remaining');
  expect(view.identity.credits).toEqual({ remaining: 0 });
  const explained = async (keyId?: string) => (await fleet.ok('keys.explain', { keyId })).rules.at(-1);
  expect(await explained(first?.keyId)).toEqual({
    ...{ rule: 'credits', passed: false, detail: 'of the identity: 0 left, takes 1' },
  });
  expect((await explained(own.keyId)).detail).toBe('0 left, takes 1');
});

test('verdicts tell what is left, whatever it costs', async () => {
  await createIdentity('bob', { credits: { remaining: 10 } });
  const { key } = await createKey({ externalId: 'bob' });
  const ask = async (cost: number) => (await fleet.verify(key, { remaining: { cost } })).body;
  expect(await ask(4)).toMatchObject({ code: 'VALID', remaining: 6 });
  expect(await ask(7)).toMatchObject({ code: 'USAGE_EXCEEDED', remaining: 6 });
  expect(await ask(0)).toMatchObject({ code: 'VALID', remaining: 6 });
  expect(await fleet.verdict(key, { apiId: 'other' })).toBe('FORBIDDEN');
});

test('a change is complete for every verifier', async () => {
  await createIdentity('cat', { credits: { remaining: 2 } });
  const { key } = await createKey({ externalId: 'cat' });
  expect(await flood([key], 4, 1)).toEqual({ VALID: 2, USAGE_EXCEEDED: 2 });
  expect(await update('cat', 'increment', 4)).toMatchObject({
    remaining: 4,
    propagation: { state: 'complete' },
  });
  expect(await flood([key], 6, 1)).toEqual({ VALID: 4, USAGE_EXCEEDED: 2 });
  expect(await update('cat', 'set', 100)).toMatchObject({ remaining: 100 });
  expect(await flood([key], 20)).toEqual({ VALID: 20 });
  expect(await update('cat', 'decrement', 200)).toMatchObject({ remaining: 0 });
  expect(await flood([key], 4, 1)).toEqual({ USAGE_EXCEEDED: 4 });
  const operationId = 'operation-of-an-identity';
  const first = await update('cat', 'increment', 3, { operationId });
  const { sequence } = first.propagation;
  expect(await update('cat', 'increment', 3, { operationId })).toMatchObject({ propagation: { sequence } });
  expect(await flood([key], 5, 1)).toEqual({ VALID: 3, USAGE_EXCEEDED: 2 });
  expect(await update('cat', 'set', null)).toMatchObject({ remaining: null });
  expect(await flood([key], 4, 1)).toEqual({ VALID: 4 });
  const refused = await fleet.admin('identities.updateCredits', {
    externalId: 'cat',
    op: 'increment',
    value: 1,
  });
  expect(refused).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringMatching(/^remaining: /) } },
  });
});

test('updateIdentity sets them, their refill and thresholds', async () => {
  await createIdentity('dan', {});
  const { key } = await createKey({ externalId: 'dan' });
  expect(await fleet.verdict(key)).toBe('VALID');
  const refill = { interval: 'daily', amount: 5 };
  const set = (credits: object | null) =>
    fleet.ok('identities.updateIdentity', { externalId: 'dan', credits });
  expect(await set({ remaining: 1, refill, thresholds: [80] })).toMatchObject({ credits: { remaining: 1 } });
  expect(await flood([key], 3, 1)).toEqual({ VALID: 1, USAGE_EXCEEDED: 2 });
  expect(await creditsOf('dan')).toEqual({ remaining: 0, refill, thresholds: [80] });
  // The next day.
  const { q = '' } = await fleet.client.hgetall(recordKey(SHARED_LOG, await idOf('dan')));
  await fleet.client.hset(poolKey(SHARED_LOG, q), 't', 1);
  await fleet.until(async () => (await fleet.verdict(key)) === 'VALID');
  expect(await flood([key], 6, 1)).toEqual({ VALID: 4, USAGE_EXCEEDED: 2 });
  await set(null);
  expect(await creditsOf('dan')).toBeUndefined();
  expect(await flood([key], 3, 1)).toEqual({ VALID: 3 });
});
const idOf = async (externalId: string) => (await fleet.ok('identities.getIdentity', { externalId })).id;

test('follow the identity that applies to a key', async () => {
  await createIdentity('eve', { credits: { remaining: 1 } });
  await createIdentity('fay', { credits: { remaining: 2 }, apiIds: ['shop'] });
  const { key, keyId } = await createKey({ externalId: 'eve' });
  expect(await flood([key], 2, 1)).toEqual({ VALID: 1, USAGE_EXCEEDED: 1 });
  await fleet.ok('keys.updateKey', { keyId, externalId: 'fay' });
  expect(await flood([key], 3, 1)).toEqual({ VALID: 2, USAGE_EXCEEDED: 1 });
  const elsewhere = await createKey({ apiId: 'billing', externalId: 'fay' });
  expect(await flood([elsewhere.key], 2, 1)).toEqual({ VALID: 2 });
  const identityId = await idOf('fay');
  const { q = '' } = await fleet.client.hgetall(recordKey(SHARED_LOG, identityId));
  await fleet.ok('identities.deleteIdentity', { identityId });
  expect(await fleet.client.exists(poolKey(SHARED_LOG, q))).toBe(0);
  expect(await flood([key], 2, 1)).toEqual({ VALID: 2 });
});

test('what a killed verifier held is lost, no more', async () => {
  await createIdentity('gil', { credits: { remaining: 1000 } });
  const keys = await Promise.all(['shop', 'billing'].map((apiId) => createKey({ apiId, externalId: 'gil' })));
  const verifier = new Process('verifier/main.ts', {
    ...{
      REDIS_URL: fleet.redisUrl,
      CREDITS_SLICE_MS: '60000',
      LOOKUP_WAIT_MS: '5000',
      EVENT_LOOP_DELAY_MS_MAX: '0',
    },
  });
  await verifier.start();
  let used = 0;
  const use = async (key = '') => {
    const { body } = await fleet.decided(() => fleet.post(`${verifier.address}/v1/keys.verifyKey`, { key }));
    if (body.code === 'VALID') used++;
  };
  for (let i = 0; i < 3; i++) await Promise.all(Array.from({ length: 30 }, (_, n) => use(keys[n % 2]?.key)));
  expect(used).toBe(90);
  await verifier.stop('SIGKILL');
  // A change removes it; what it held is lost, and nothing of it is given out again.
  await fleet.ok('identities.updateIdentity', { externalId: 'gil', meta: { a: 1 } });
  await fleet.until(async () => (await creditsOf('gil')).remainingLost > 0);
  const { remaining, remainingLost } = await creditsOf('gil');
  expect(remaining + remainingLost).toBeLessThanOrEqual(1000);
  const counts = await flood(
    keys.map(({ key }) => key),
    1100,
    40,
  );
  expect(counts['VALID']).toBe(remaining);
  expect(used + remaining).toBeLessThanOrEqual(1000);
});

test('names the field of bad credits', async () => {
  const refusal = async (credits: object) => {
    const answer = await fleet.admin('identities.createIdentity', { externalId: 'bad', credits });
    expect(answer.status).toBe(400);
    return answer.body.error.message;
  };
  expect(await refusal({ refill: { interval: 'daily', amount: 1 } })).toBe(
    'credits.refill: needs credits.remaining; give both',
  );
  expect(await refusal({ remaining: 1, thresholds: [9, 8] })).toContain(
    'credits.thresholds: must be in ascending order',
  );
  expect(await refusal({ remaining: -1 })).toContain('credits');
});

test('verifiers that ignore them are kept out', () => {
  expect(protocolFor('identity_1', {}, {})).toBe(2);
  expect(protocolFor('key_1', {}, {})).toBe(1);
});
