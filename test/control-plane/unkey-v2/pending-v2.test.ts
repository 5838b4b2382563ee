import { afterAll, beforeAll, expect, test } from 'vitest';
import { PROTOCOL } from '../../../shared/protocol/records/protocol.ts';
import { apiKeys, SHARED_LOG } from '../../../shared/redis/redis-keys.ts';
import { type Answer, Fleet, ROOT_KEY } from '../../harness/fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { FENCE_WAIT_MS: '50', LEASE_MS: '60000' } });
});
afterAll(() => fleet.stop());

const callV2 = (operation: string, body: object): Promise<Answer> =>
  fleet.post(`${fleet.controlPlanes[0]?.address}/v2/${operation}`, body, {
    authorization: `Bearer ${ROOT_KEY}`,
  });
/** Makes a verifier that is registered and never answers a member of an API. */
const addSilentMember = (apiId: string) =>
  fleet.client.zadd(apiKeys(apiId).members, '0', `${PROTOCOL}.silent`);

test('an incomplete change is 503 and written', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  await callV2('identities.createIdentity', { externalId: 'ada' });
  for (const apiId of ['shop', SHARED_LOG]) await addSilentMember(apiId);
  for (const [operation, body] of [
    ['keys.updateKey', { keyId, enabled: false }],
    ['keys.setPermissions', { keyId, permissions: ['files.read'] }],
    ['identities.updateIdentity', { identity: 'ada', meta: { plan: 'pro' } }],
    ['ratelimit.setOverride', { namespace: 'email.send', identifier: 'ada', limit: 1, duration: 60_000 }],
  ] as const) {
    const { status, headers, body: answer } = await callV2(operation, body);
    expect(status, operation).toBe(503);
    expect(headers['retry-after']).toBe('1');
    expect(answer.error.detail).toMatch(/^the change is written as \d+ (and|but) not complete yet; /);
  }
  expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({
    enabled: false,
    permissions: ['files.read'],
  });
  // A second call would change the key once more, so the first says what there is.
  const { status, body } = await callV2('keys.rerollKey', { keyId, expiration: 0 });
  expect([status, body.data.key]).toEqual([200, expect.any(String)]);
  const deleted = await callV2('keys.deleteKey', { keyId });
  expect(deleted.status).toBe(503);
  expect(deleted.body.error.detail).toMatch(/it becomes so by itself, and the call sent again answers 404$/);
  expect((await callV2('keys.deleteKey', { keyId })).status).toBe(404);
});
