import { afterAll, beforeAll, expect, test } from 'vitest';
import { apiKeys, apiList, identityIndexKey, recordKey } from '../../../../shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';

/** Keys that Redis still holds of what is gone. */
let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { LEASE_MS: '500' } });
});
afterAll(() => fleet.stop());

/** Everything that Redis holds but the audit log and what expires. */
const held = async () => (await fleet.client.keys('*')).filter((key) => !/!audit|^kf:[rd]:/.test(key)).sort();
const LONG = { text: 'x'.repeat(3000) };

test('a deleted key leaves only its log entry', async () => {
  const { keyId: other } = await fleet.ok('keys.createKey', { apiId: 'shop', externalId: 'o' });
  await fleet.ok('keys.updateKey', { keyId: other, enabled: false });
  const before = await held();
  const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'shop', externalId: 'o', meta: LONG });
  expect((await held()).length).toBe(before.length + 4); // the record, the long meta and two pointers
  await fleet.ok('keys.deleteKey', { keyId });
  expect(await held()).toEqual(before);
  expect(await fleet.client.zrange(identityIndexKey('shop', 'o'), '0', '-1')).toEqual([other]);
  expect(key).toMatch(/^\w+$/);
  // The receipt of the deletion goes by itself.
  expect(await fleet.client.ttl(`kf:d:${keyId}`)).toBeGreaterThan(0);
});

test('a lost record is told to whoever disables it', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'lossy' });
  await fleet.client.del(recordKey('lossy', keyId));
  const asked = [
    await fleet.admin('keys.updateKey', { keyId, enabled: false }),
    await fleet.admin('keys.deleteKey', { keyId }),
    await fleet.admin('keys.getKey', { keyId }),
    await fleet.admin('keys.getVerifications', { keyId }),
  ];
  for (const { status, body } of asked) {
    expect(status).toBe(404);
    expect(body.error).toMatchObject({ code: 'NOT_FOUND', message: expect.stringContaining(keyId) });
    expect(body.error.message).toMatch(/Redis has no record of it; .*may still accept it; restart them/);
  }
  // One that never was, was deleted, or went with its API is simply not there.
  const plain = async (id: string) => {
    const { status, body } = await fleet.admin('keys.updateKey', { keyId: id, enabled: false });
    expect([status, body.error.message]).toEqual([404, `key ${id} not found`]);
  };
  await plain('key_0mzc9k4q8r2wfXa1Bc2d');
  const { keyId: deleted } = await fleet.ok('keys.createKey', { apiId: 'lossy' });
  await fleet.ok('keys.deleteKey', { keyId: deleted });
  await plain(deleted);
  await fleet.client.hset(apiKeys('lossy').head, 'deleted', '1');
  await plain(keyId);
});

test('an owner without keys leaves nothing behind', async () => {
  const [one, two] = [
    await fleet.ok('keys.createKey', { apiId: 'owned', externalId: 'a' }),
    await fleet.ok('keys.createKey', { apiId: 'owned', externalId: 'a' }),
  ];
  await fleet.ok('keys.updateKey', { keyId: one.keyId, externalId: 'b' });
  expect(await fleet.client.zrange(identityIndexKey('owned', 'a'), '0', '-1')).toEqual([two.keyId]);
  expect(await fleet.client.zrange(identityIndexKey('owned', 'b'), '0', '-1')).toEqual([one.keyId]);
  await fleet.ok('keys.deleteKey', { keyId: two.keyId });
  await fleet.ok('keys.updateKey', { keyId: one.keyId, externalId: null });
  expect(await fleet.client.exists(identityIndexKey('owned', 'a'), identityIndexKey('owned', 'b'))).toBe(0);
});

test('a key refused in a deletion leaves nothing', async () => {
  await fleet.ok('apis.createApi', { apiId: 'going', name: 'n' });
  await fleet.ok('apis.deleteApi', { apiId: 'going' });
  const pointers = async () => (await held()).filter((key) => /^kf:[pi]:/.test(key));
  const before = await pointers();
  expect((await fleet.admin('keys.createKey', { apiId: 'going', externalId: 'o' })).status).toBe(409);
  const keys = [{ sha256: 'ab'.repeat(32) }, { sha256: 'cd'.repeat(32) }];
  expect((await fleet.admin('keys.importKeys', { apiId: 'going', keys })).status).toBe(409);
  expect(await pointers()).toEqual(before);
});

test('a deleted API is swept and leaves nothing', async () => {
  const before = await held();
  const keys = [{ sha256: 'ab'.repeat(32), externalId: 'o', meta: LONG }, { sha256: 'cd'.repeat(32) }];
  await fleet.ok('keys.importKeys', { apiId: 'imported', keys });
  await fleet.ok('keys.createKey', { apiId: 'by-key', externalId: 'o', meta: LONG });
  await fleet.ok('apis.createApi', { apiId: 'named', name: 'n' });
  const apis = ['by-key', 'imported', 'named'];
  const shown = (await fleet.ok('apis.listApis')).apis.map(({ id }: { id: string }) => id);
  expect(shown).toEqual(expect.arrayContaining(apis));
  for (const apiId of apis) await fleet.ok('apis.deleteApi', { apiId });
  await fleet.until(
    async () => (await fleet.client.zmscore(apiList, ...apis)).every((score) => score === null),
    'they are not swept',
  );
  expect((await held()).filter((key) => !before.includes(key))).toEqual([]);
});
