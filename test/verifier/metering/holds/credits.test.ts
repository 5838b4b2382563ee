import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

/** Holds that reserve credits, at two verifiers. */
let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env: { USAGE_PERIOD_MS: '100', LOOKUP_WAIT_MS: '5000' } });
});
afterAll(() => fleet.stop());

const create = (fields: object) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const at = (i: number, path: string, body: object) =>
  fleet.post(`${fleet.verifiers[i]?.address}/v1/${path}`, body);
const hold = async (i: number, key: string, fields: object = {}) =>
  (await at(i, 'keys.verifyKey', { key, hold: fields })).body;
const release = (i: number, id: string, cost?: number) =>
  at(i, 'keys.release', { hold: id, ...(cost === undefined ? {} : { cost }) });
const remainingOf = async (keyId: string) => (await fleet.ok('keys.getKey', { keyId })).remaining;

test('a hold reserves, and charges what the work cost', async () => {
  const { key, keyId } = await create({ remaining: 10_000 });
  const answer = await hold(0, key, { credits: 5000 });
  expect(answer).toMatchObject({ code: 'VALID', remaining: 5000 });
  expect(answer.hold.id).toMatch(/^hold_verifier_\w{20}_[\w-]{22}$/);
  expect(answer.hold.expiresAt).toBeGreaterThan(Date.now() + 50_000);
  const { status, body } = await release(0, answer.hold.id, 1234);
  expect(status).toBe(200);
  expect(body).toEqual({ charged: 1234, remaining: 8766, requestId: expect.any(String) });
  await fleet.until(async () => (await remainingOf(keyId)) === 8766);
  // The other verifier finds all that came back.
  expect(await hold(1, key, { credits: 8766 })).toMatchObject({ code: 'VALID', remaining: 0 });
});

test('a release that is repeated is answered the same, and charges once', async () => {
  const { key, keyId } = await create({ remaining: 100 });
  const { hold: held } = await hold(0, key, { credits: 50 });
  const first = await release(0, held.id, 20);
  const again = await Promise.all([release(0, held.id, 20), release(0, held.id, 40), release(0, held.id)]);
  for (const { status, body } of again) {
    expect(status).toBe(200);
    expect({ ...body, requestId: 0 }).toEqual({ ...first.body, requestId: 0 });
  }
  await fleet.until(async () => (await remainingOf(keyId)) === 80);
});

test('without a cost it charges what was reserved', async () => {
  const { key } = await create({ remaining: 100 });
  const { hold: held } = await hold(0, key, { credits: 30 });
  expect((await release(0, held.id)).body).toMatchObject({ charged: 30, remaining: 70 });
});

test('a cost above the reservation takes what is there', async () => {
  const { key, keyId } = await create({ remaining: 100 });
  const [first, second] = [await hold(0, key, { credits: 10 }), await hold(0, key, { credits: 10 })];
  expect((await release(0, first.hold.id, 60)).body).toMatchObject({ charged: 60, remaining: 30 });
  expect((await release(0, second.hold.id, 60)).body).toMatchObject({ charged: 40, short: 20, remaining: 0 });
  await fleet.until(async () => (await remainingOf(keyId)) === 0);
});

test('a release tells nothing that a change made old', async () => {
  const ratelimits = [{ name: 'tokens', limit: 100, duration: 3_600_000 }];
  const { key, keyId } = await create({ remaining: 100, ratelimits });
  const { hold: held } = await hold(0, key, { credits: 50, ratelimits: [{ name: 'tokens', cost: 50 }] });
  await fleet.ok('keys.updateKey', { keyId, name: 'Ada' });
  await at(0, 'keys.verifyKey', { key, remaining: { cost: 0 }, ratelimits: [{ name: 'tokens', cost: 0 }] });
  const { body } = await at(0, 'keys.release', { hold: held.id, costs: { credits: 3, tokens: 3 } });
  const told = { charged: 3, ratelimits: [{ name: 'tokens', charged: 3 }] };
  expect(body).toEqual({ ...told, requestId: expect.any(String) });
  const all = { credits: 97, ratelimits: [{ name: 'tokens', cost: 97 }] };
  expect(await hold(0, key, all)).toMatchObject({ code: 'VALID', remaining: 0 });
});

test('a hold takes what a customer has left', async () => {
  await fleet.ok('identities.createIdentity', { externalId: 'acme', credits: { remaining: 15 } });
  const { key } = await create({ externalId: 'acme' });
  const { code, hold: held } = await hold(0, key, { credits: 20, atLeast: 2 });
  expect([code, held.credits]).toEqual(['VALID', 15]);
  expect((await release(0, held.id, 1)).body).toMatchObject({ charged: 1, remaining: 14 });
});

test('a hold that nobody releases is charged in full', async () => {
  const { key, keyId } = await create({ remaining: 100 });
  const { hold: held } = await hold(0, key, { credits: 30, forMs: 1000 });
  const metrics = async () => (await fleet.get(`${fleet.verifiers[0]?.adminAddress}/metrics`)).body;
  await fleet.until(async () => (await metrics()).includes('keyfence_holds_expired_total 1'));
  const { status, body } = await release(0, held.id, 0);
  expect([status, body.error.code]).toEqual([404, 'HOLD_UNKNOWN']);
  expect(await remainingOf(keyId)).toBe(70);
});

test('what a decrement took never comes back', async () => {
  const { key, keyId } = await create({ remaining: 1000 });
  const answer = await hold(0, key, { credits: 900 });
  expect(await fleet.ok('keys.updateRemaining', { keyId, op: 'decrement', value: 1000 })).toMatchObject({
    remaining: 0,
    propagation: { state: 'complete' },
  });
  await release(0, answer.hold.id, 0);
  expect((await hold(1, key, { credits: 1 })).code).toBe('USAGE_EXCEEDED');
  expect(await fleet.ok('keys.updateRemaining', { keyId, op: 'increment', value: 5 })).toMatchObject({
    remaining: 5,
  });
  expect(await hold(1, key, { credits: 5 })).toMatchObject({ code: 'VALID', remaining: 0 });
});

test('an increment does not pay what a decrement did not find', async () => {
  const { key, keyId } = await create({ remaining: 100 });
  const answer = await hold(0, key, { credits: 100 });
  const change = (op: string, value: number) => fleet.ok('keys.updateRemaining', { keyId, op, value });
  expect((await change('decrement', 100)).remaining).toBe(0);
  expect((await change('increment', 1200)).remaining).toBe(1200);
  for (let i = 0; i < 20; i++) expect((await at(i % 2, 'keys.verifyKey', { key })).body.code).toBe('VALID');
  expect((await release(0, answer.hold.id, 100)).status).toBe(200);
  await fleet.until(async () => (await remainingOf(keyId)) === 1180);
});

test.each([
  ['set', 500],
  ['set', null],
])('a release above the reservation after %s %s ends the hold', async (op, value) => {
  const { key, keyId } = await create({ remaining: 100 });
  const answer = await hold(0, key, { credits: 60 });
  await fleet.ok('keys.updateRemaining', { keyId, op, value });
  const { status, body } = await release(0, answer.hold.id, 61);
  expect([status, body]).toEqual([200, { charged: 60, short: 1, requestId: expect.any(String) }]);
});

test('a release after a set does not say what is left', async () => {
  const { key, keyId } = await create({ remaining: 1000 });
  const answer = await hold(0, key, { credits: 900 });
  await fleet.ok('keys.updateRemaining', { keyId, op: 'set', value: 50 });
  const { body } = await release(0, answer.hold.id, 10);
  expect(body).toEqual({ charged: 10, requestId: expect.any(String) });
  expect(await remainingOf(keyId)).toBe(50);
});

test('a cost that can never fit says so', async () => {
  const refill = { interval: 'daily', amount: 100 };
  const { key } = await create({
    remaining: 100,
    refill,
    ratelimits: [{ name: 'calls', limit: 5, duration: 60_000 }],
  });
  const asked = (body: object) => at(0, 'keys.verifyKey', { key, ...body });
  expect((await asked({ remaining: { cost: 101 } })).body).toMatchObject({
    code: 'USAGE_EXCEEDED',
    needed: 101,
  });
  expect((await asked({ ratelimits: [{ name: 'calls', cost: 6 }] })).body).toMatchObject({
    ...{ code: 'RATE_LIMITED', needed: 6 },
  });
  expect((await asked({ remaining: { cost: 60 } })).body).toMatchObject({ code: 'VALID' });
  expect((await asked({ remaining: { cost: 60 } })).body).not.toHaveProperty('needed');
});

test('without a refill only work can bring credits', async () => {
  const { key } = await create({ remaining: 100 });
  const asked = async (cost: number) => (await at(1, 'keys.verifyKey', { key, remaining: { cost } })).body;
  const { hold: held } = await hold(0, key, { credits: 70 });
  expect(await asked(101)).toMatchObject({ code: 'USAGE_EXCEEDED', remaining: 30, needed: 101 });
  // The work may give them back.
  const refused = await asked(100);
  expect(refused).toMatchObject({ code: 'USAGE_EXCEEDED', remaining: 30 });
  expect(refused).not.toHaveProperty('needed');
  await release(0, held.id, 1);
  await fleet.until(async () => (await asked(100)).needed === 100);
  await fleet.until(async () => (await asked(99)).code === 'VALID');
  expect(await asked(1)).toMatchObject({ code: 'USAGE_EXCEEDED', remaining: 0, needed: 1 });
});
