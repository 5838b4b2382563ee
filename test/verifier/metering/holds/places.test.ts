import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';

/** Concurrency limits over three verifiers. */
let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 3, env: { USAGE_PERIOD_MS: '100', LOOKUP_WAIT_MS: '5000' } });
});
afterAll(() => fleet.stop());

const create = (fields: object) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const at = (i: number, path: string, body: object) =>
  fleet.decided(() => fleet.post(`${fleet.verifiers[i]?.address}/v1/${path}`, body));
const hold = async (i: number, key: string, fields: object = {}) =>
  (await at(i, 'keys.verifyKey', { key, hold: fields })).body;
const see = async (i: number, key: string) => (await at(i, 'keys.verifyKey', { key })).body;
const release = (i: number, { hold }: { hold: { id: string } }) => at(i, 'keys.release', { hold: hold.id });

test('at most as many as the limit, over all verifiers', async () => {
  const { key } = await create({ concurrency: [{ name: 'jobs', limit: 3 }] });
  const held = [await hold(0, key), await hold(1, key), await hold(2, key)];
  for (const [i, { code, concurrency }] of held.entries())
    expect({ code, concurrency }).toEqual({
      code: 'VALID',
      concurrency: [{ name: 'jobs', limit: 3, remaining: 2 - i, exceeded: false }],
    });
  const { status, headers, body } = await at(0, 'keys.verifyKey', { key, hold: {} });
  expect([status, headers['retry-after']]).toEqual([200, undefined]);
  expect(body).toMatchObject({
    ...{ valid: false, code: 'CONCURRENCY_EXCEEDED' },
    concurrency: [{ name: 'jobs', limit: 3, remaining: 0, exceeded: true }],
  });
  expect(body).not.toHaveProperty('hold');
  expect((await see(1, key)).code).toBe('CONCURRENCY_EXCEEDED');
  await release(2, held[2]);
  // At another verifier, well before its refusal is forgotten.
  const since = Date.now();
  await fleet.until(async () => (await see(0, key)).code === 'VALID');
  expect(Date.now() - since).toBeLessThan(1000);
  expect((await hold(0, key)).code).toBe('VALID');
  expect((await hold(1, key)).code).toBe('CONCURRENCY_EXCEEDED');
});

test('a question without a hold takes no place', async () => {
  const { key } = await create({ concurrency: [{ name: 'jobs', limit: 1 }] });
  for (let i = 0; i < 10; i++) expect((await see(i % 3, key)).code).toBe('VALID');
  const held = await hold(1, key);
  expect(held.code).toBe('VALID');
  expect((await see(0, key)).code).toBe('CONCURRENCY_EXCEEDED');
  await release(1, held);
});

test('a hold that nobody releases frees its place', async () => {
  const { key } = await create({ concurrency: [{ name: 'jobs', limit: 1 }] });
  expect((await hold(0, key, { forMs: 1000 })).code).toBe('VALID');
  expect((await hold(1, key)).code).toBe('CONCURRENCY_EXCEEDED');
  await fleet.until(async () => (await hold(1, key)).code === 'VALID');
});

describe('keys of an identity', () => {
  test('share its places, over its APIs', async () => {
    await fleet.ok('identities.createIdentity', {
      externalId: 'acme',
      concurrency: [{ name: 'jobs', limit: 2 }],
    });
    const one = await create({ externalId: 'acme' });
    const other = await fleet.ok('keys.createKey', { apiId: 'other', externalId: 'acme' });
    const held = await hold(0, one.key);
    expect((await hold(1, other.key)).code).toBe('VALID');
    expect((await hold(2, one.key)).code).toBe('CONCURRENCY_EXCEEDED');
    await release(0, held);
    await fleet.until(async () => (await hold(2, other.key)).code === 'VALID');
  });
});

test('a lower limit counts those that run', async () => {
  const { key, keyId } = await create({ concurrency: [{ name: 'jobs', limit: 4 }] });
  const held = [await hold(0, key), await hold(1, key), await hold(2, key)];
  await fleet.ok('keys.updateKey', { keyId, concurrency: [{ name: 'jobs', limit: 2 }] });
  expect((await hold(0, key)).code).toBe('CONCURRENCY_EXCEEDED');
  await release(0, held[0]);
  await release(1, held[1]);
  await fleet.until(async () => (await hold(1, key)).code === 'VALID');
  expect((await hold(0, key)).code).toBe('CONCURRENCY_EXCEEDED');
});

test('places of a verifier that was removed are free', async () => {
  const { key, keyId } = await create({ concurrency: [{ name: 'jobs', limit: 2 }] });
  const lost = await fleet.addVerifier();
  const place = fleet.verifiers.indexOf(lost);
  expect([(await hold(place, key)).code, (await hold(place, key)).code]).toEqual(['VALID', 'VALID']);
  expect((await hold(0, key)).code).toBe('CONCURRENCY_EXCEEDED');
  await lost.stop();
  await fleet.until(async () => (await hold(0, key)).code === 'VALID');
  expect(keyId).toBeDefined();
});

test('work keeps its place while nobody asks', async () => {
  const verifier = await fleet.addVerifier({ LOOKUP_WAIT_MS: '5000', API_IDLE_MS: '100' });
  const place = fleet.verifiers.indexOf(verifier);
  const { key } = await fleet.ok('keys.createKey', {
    apiId: 'quiet',
    concurrency: [{ name: 'jobs', limit: 1 }],
  });
  const { key: other } = await fleet.ok('keys.createKey', { apiId: 'forgotten' });
  const membersOf = (apiId: string) => fleet.client.zcard(apiKeys(apiId).members);
  const held = await hold(place, key);
  expect((await see(place, other)).code).toBe('VALID');
  // It leaves the one API, and stays in the other.
  for (let i = 0; i < 3; i++) {
    expect(await membersOf('forgotten')).toBe(1);
    await fleet.until(async () => (await membersOf('forgotten')) === 0);
    expect((await see(place, other)).code).toBe('VALID');
  }
  expect(await membersOf('quiet')).toBe(1);
  expect((await hold(0, key)).code).toBe('CONCURRENCY_EXCEEDED');
  await release(place, held);
});

test('a lower limit is obeyed under load, whoever ends', async () => {
  const { key, keyId } = await create({ concurrency: [{ name: 'jobs', limit: 10 }] });
  const running = await Promise.all(Array.from({ length: 8 }, (_, i) => hold(i % 2, key)));
  expect(running.map(({ code }) => code)).toEqual(running.map(() => 'VALID'));
  await fleet.ok('keys.updateKey', { keyId, concurrency: [{ name: 'jobs', limit: 2 }] });
  for (let left = 8; left > 2; left--) {
    await release(left % 2 === 0 ? 1 : 0, running[left - 1]);
    expect([(await hold(0, key)).code, (await hold(1, key)).code]).toEqual([
      'CONCURRENCY_EXCEEDED',
      'CONCURRENCY_EXCEEDED',
    ]);
  }
  await release(0, running[0]);
  await fleet.until(async () => (await hold(0, key)).code === 'VALID');
  expect((await hold(1, key)).code).toBe('CONCURRENCY_EXCEEDED');
});

test('a limit of a question is not one of places', async () => {
  const { key } = await create({ concurrency: [{ name: 'jobs', limit: 1 }] });
  const own = { ratelimits: [{ name: 'jobs', limit: 5, duration: 60_000 }] };
  const asked = async () => (await at(0, 'keys.verifyKey', { key, hold: {}, ...own })).body.code;
  expect([await asked(), await asked()]).toEqual(['VALID', 'CONCURRENCY_EXCEEDED']);
});

test('credits of a refused question are free at once', async () => {
  await fleet.ok('identities.createIdentity', { externalId: 'once', credits: { remaining: 1 } });
  const busy = await create({ externalId: 'once', concurrency: [{ name: 'jobs', limit: 1 }] });
  const other = await create({ externalId: 'once' });
  const held = await hold(0, busy.key, { credits: 0 });
  expect(held.code).toBe('VALID');
  for (let i = 0; i < 5; i++) expect((await hold(1, busy.key)).code).toBe('CONCURRENCY_EXCEEDED');
  await fleet.until(async () => {
    const { code } = await see(2, other.key);
    expect(['VALID', 'USAGE_EXCEEDED']).toContain(code);
    return code === 'VALID';
  });
});
