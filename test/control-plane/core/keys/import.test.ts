import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { formatPointer, secretPointer } from '../../../../shared/redis/redis-keys.ts';
import { generateKey, hashSecret } from '../../../../shared/rules/key-format.ts';
import { Fleet } from '../../../harness/fleet.ts';

let fleet: Fleet;
let redis: Redis;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { FOREIGN_KEYS: 'true' } });
  await fleet.addVerifier({ FOREIGN_KEYS: 'false' });
  redis = new Redis({ path: fleet.redisUrl.replace('unix://', ''), lazyConnect: true });
  await redis.connect();
});
afterAll(async () => {
  redis.disconnect();
  await fleet.stop();
});

const hex = (secret: string) => createHash('sha256').update(secret).digest('hex');
const importKeys = async (apiId: string, keys: readonly unknown[]) =>
  (await fleet.ok('keys.importKeys', { apiId, keys })).results;
const namesIn = async (apiId: string) =>
  (await fleet.ok('apis.listKeys', { apiId })).keys.map(({ name }: { name: string }) => name);

test('accepts imported keys with all their fields', async () => {
  const owner = { externalId: 'o1', ownerId: 'o1' };
  const meta = { plan: 'pro' };
  const given = { name: 'Ada', ...owner, environment: 'live', meta, expires: Date.now() + 60_000 };
  const [ours, disabled] = [generateKey(16, 'shop'), 'sk_live_disabled-0123456789'];
  const results = await importKeys('shop', [
    { sha256: hashSecret(ours), start: 'shop_abcd', foreign: false, ...given },
    { sha256: hex(disabled).toUpperCase(), enabled: false },
  ]);
  expect(results).toEqual([
    { result: 'created', keyId: expect.stringMatching(/^key_/) },
    { result: 'created', keyId: expect.stringMatching(/^key_/) },
  ]);
  const [{ keyId }] = results;
  expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({
    start: 'shop_abcd',
    enabled: true,
    ...given,
  });
  await fleet.verdict(ours); // callers bear that a verifier cannot decide yet
  expect((await fleet.verify(ours)).body).toMatchObject({ valid: true, keyId, apiId: 'shop', ...given });
  expect(await fleet.verdict(disabled)).toBe('DISABLED');
  expect((await fleet.ok('keys.updateKey', { keyId, enabled: false })).propagation.state).toBe('complete');
  expect(await fleet.verdict(ours)).toBe('DISABLED');
});

test('finds foreign keys only with FOREIGN_KEYS', async () => {
  const ours = generateKey(16);
  await importKeys('native', [{ sha256: hashSecret(ours), foreign: false }]);
  expect(await fleet.ok('apis.getApi', { apiId: 'native' })).not.toHaveProperty('foreignKeys');
  await importKeys('native', [{ sha256: hex('legacy-key-1') }]);
  expect(await fleet.ok('apis.getApi', { apiId: 'native' })).toMatchObject({ foreignKeys: true });
  expect(await fleet.verdict('legacy-key-1', { at: 0 })).toBe('VALID');
  expect(await fleet.verdict('legacy-key-1', { at: 1 })).toBe('NOT_FOUND');
  expect(await fleet.verdict(ours, { at: 1 })).toBe('VALID');
});

test('refuses a wrong key alone, naming its field', async () => {
  const wrong: [unknown, RegExp][] = [
    [{}, /^sha256: required, or one of sha512, sha1, hmacSha256$/],
    [{ sha256: 'abc' }, /^sha256: must match pattern/],
    [{ sha256: `${hashSecret('x').slice(0, -1)}B` }, /^sha256: must match pattern/],
    [{ sha256: hex('x'), key: 'plain' }, /^key: unknown field$/],
    [{ sha256: hex('x'), name: '' }, /^name: /],
    [{ sha256: hex('x'), name: '\ud800' }, /^name: must be well-formed Unicode$/],
    [{ sha256: hex('x'), meta: { owner: '\ud800' } }, /^meta: must be well-formed Unicode$/],
    [{ sha256: hex('x'), meta: { long: 'm'.repeat(8200) } }, /^meta: must be at most 8192 bytes/],
    [{ sha256: hex('x'), expires: '1' }, /^expires: must be integer$/],
    [{ sha256: hex('x'), expires: 1_893_456_000 }, /^expires: must be Unix milliseconds, not seconds/],
    [7, /^key: must be object$/],
    [null, /^key: must be object$/],
  ];
  // Keys that ended long ago are taken in, too.
  const good = { sha256: hex('good'), name: 'good', expires: 200_000_000_000 };
  const results = await importKeys('mixed', [...wrong.map(([key]) => key), good]);
  for (const [i, [, message]] of wrong.entries()) {
    expect(results[i]).toEqual({
      result: 'refused',
      code: 'BAD_REQUEST',
      message: expect.stringMatching(message),
    });
  }
  expect(results[wrong.length].result).toBe('created');
  expect(await namesIn('mixed')).toEqual(['good']);
});

test('keeps a secret that was imported before', async () => {
  const key = { sha256: hex('twice'), name: 'first' };
  const [first, second] = await importKeys('again', [key, { ...key, name: 'second' }]);
  expect([first.result, second.result]).toEqual(['created', 'exists']);
  const [third] = await importKeys('again', [{ ...key, name: 'third', enabled: false }]);
  expect(third).toEqual({ result: 'exists', keyId: first.keyId });
  expect(await namesIn('again')).toEqual(['first']);
  expect((await importKeys('elsewhere', [key]))[0]).toEqual({
    result: 'refused',
    code: 'CONFLICT',
    message: 'the secret exists already',
  });
});

test('concurrent imports make each key once', async () => {
  const keys = Array.from({ length: 200 }, (_, i) => ({ sha256: hex(`race-${i}`), name: String(i) }));
  const rounds = await Promise.all([1, 2, 3].map(() => importKeys('race', keys)));
  for (const i of keys.keys()) {
    expect(new Set(rounds.map((results) => results[i].keyId)).size).toBe(1);
    expect(rounds.filter((results) => results[i].result === 'created')).toHaveLength(1);
  }
  expect((await fleet.ok('apis.listKeys', { apiId: 'race' })).total).toBe(200);
});

test('finishes a call cut off before the record', async () => {
  const sha256 = hashSecret('half-way');
  await redis.set(secretPointer(sha256), formatPointer('half', 'key_half'));
  expect(await importKeys('half', [{ sha256 }])).toEqual([{ result: 'created', keyId: 'key_half' }]);
  expect((await fleet.ok('keys.getKey', { keyId: 'key_half' })).apiId).toBe('half');
  expect(await fleet.verdict('half-way')).toBe('VALID');
});

test('accepts a secret again while its key goes', async () => {
  const sha256 = hex('back-again');
  for (let round = 0; round < 20; round++) {
    const [{ keyId }] = await importKeys('back', [{ sha256 }]);
    const deleted = fleet.ok('keys.deleteKey', { keyId });
    const again = importKeys('back', [{ sha256 }]);
    await Promise.all([deleted, again]);
    const [{ result }] = await again;
    // Either it came before the delete and saw the key, which is gone now, or after it and brought it back.
    await fleet.until(
      async () => (await fleet.verdict('back-again')) === (result === 'created' ? 'VALID' : 'NOT_FOUND'),
    );
  }
});

test('refuses 501 keys, no permission or no API', async () => {
  const { key: rootKey } = await fleet.ok('rootKeys.createRootKey', {
    name: 'reader',
    permissions: ['api.shop.read_key'],
  });
  const sha256 = hex('whole');
  const call = (apiId: string, options = {}) =>
    fleet.admin('keys.importKeys', { apiId, keys: [{ sha256 }] }, options);
  expect((await call('shop', { rootKey })).status).toBe(403);
  expect((await call('other', { rootKey })).status).toBe(404);
  await fleet.addControlPlane({ API_AUTO_CREATE: 'false' });
  expect((await call('unheard-of', { at: 1 })).body.error).toMatchObject({
    code: 'NOT_FOUND',
    message: 'api unheard-of not found',
  });
  expect(await redis.get(secretPointer(hashSecret('whole'))), 'nothing is left behind').toBeNull();
  expect((await call('shop')).body.results[0].result).toBe('created');
  const many = Array.from({ length: 501 }, () => ({ sha256 }));
  expect((await fleet.admin('keys.importKeys', { apiId: 'shop', keys: many })).status).toBe(400);
});
