import { afterAll, beforeAll, expect, test } from 'vitest';
import { apiKeys, idPointer } from '../../../../shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';

let fleet: Fleet;

beforeAll(async () => {
  const env = { FENCES_PENDING_MAX: '2', STOPS_PENDING_MAX: '3', LEASE_MS: '600000' };
  fleet = await Fleet.start({ verifiers: 0, env });
});
afterAll(() => fleet.stop());

/** A key of an API whose changes stay pending, until `settle`. */
async function keyOfPending(apiId: string): Promise<string> {
  const { keyId } = await fleet.ok('keys.createKey', { apiId });
  await fleet.client.zadd(apiKeys(apiId).members, 0, 'silent');
  return keyId;
}
const settle = (apiId: string) => fleet.client.zrem(apiKeys(apiId).members, 'silent');
const update = (keyId: string, fields: object) =>
  fleet.admin('keys.updateKey', { keyId, waitMs: 0, ...fields });

test('too many pending changes leave disables free', async () => {
  const [busy, other] = [await keyOfPending('busy'), await keyOfPending('other')];
  for (const name of ['a', 'b']) expect((await update(busy, { name })).status).toBe(200);
  const refused = await update(busy, { name: 'c' });
  expect([refused.status, refused.body.error.message, refused.headers['retry-after']]).toEqual([
    503,
    '2 changes of api busy are not complete yet; nothing was changed',
    '1',
  ]);
  expect((await fleet.ok('keys.getKey', { keyId: busy })).name).toBe('b');
  expect((await update(busy, { enabled: true })).status).toBe(503);

  expect((await update(other, { name: 'a' })).status).toBe(200);
  for (let i = 0; i < 3; i++) expect((await update(busy, { enabled: false })).status).toBe(200);
  expect((await fleet.ok('keys.getKey', { keyId: busy })).enabled).toBe(false);

  // These have a bound of their own, of this API too.
  const message = '3 disables and deletes of api busy are not complete yet; nothing was changed';
  for (const [operation, input] of [
    ['keys.updateKey', { keyId: busy, enabled: false, waitMs: 0 }],
    ['keys.deleteKey', { keyId: busy, waitMs: 0 }],
    ['apis.deleteApi', { apiId: 'busy', waitMs: 0 }],
  ] as const) {
    const { status, body } = await fleet.admin(operation, input);
    expect([status, body.error?.message], operation).toEqual([503, message]);
  }
  expect((await update(other, { enabled: false })).status).toBe(200);

  await settle('busy');
  await fleet.until(async () => (await update(busy, { name: 'd' })).status === 200);
  await fleet.ok('keys.deleteKey', { keyId: busy });
});

test('a change that was not made counts no more', async () => {
  const keyId = await keyOfPending('failing');
  const { log } = apiKeys('failing');
  await fleet.client.set(idPointer('key_gone'), 'failing');
  for (let i = 0; i < 5; i++) {
    expect((await update('key_gone', { enabled: false })).status).toBe(404);
    await fleet.client.set(log, 'not a stream');
    expect((await update(keyId, { name: 'n' })).status).toBe(500);
    await fleet.client.del(log);
  }
  expect((await update(keyId, { name: 'n' })).status).toBe(200);
});
