import { afterAll, beforeAll, expect, test } from 'vitest';
import { identityIdOf } from '#shared/contract/key-format.ts';
import { apiKeys, recordKey, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { Fleet } from '../harness/fleet.ts';
import { eventually } from '../harness/waiting.ts';

/** What verifiers ask Redis about the owners of keys, and what older ones among them mean. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
});
afterAll(() => fleet.stop());

const { head, log, members } = apiKeys(SHARED_LOG);
const newKey = (externalId?: string, apiId = 'shop') =>
  fleet.ok('keys.createKey', { apiId, ...(externalId ? { externalId } : {}) });

test('a fleet whose keys have no owners follows no roles and identities', async () => {
  const { key } = await newKey();
  expect(await fleet.verdict(key)).toBe('VALID');
  expect(await fleet.client.zcard(members)).toBe(0);
});

test('while there are no identities, owners are not asked for; with the first each is, and with none again none', async () => {
  const monitor = await fleet.client.duplicate().monitor();
  const asked = new Set<string>();
  monitor.on('monitor', (_time: string, args: string[]) => {
    for (const arg of args) if (arg.startsWith(recordKey(SHARED_LOG, 'identity_'))) asked.add(arg);
  });
  const keys = await Promise.all(['ada', 'bob', 'eve'].map((owner) => newKey(owner)));
  for (const { key } of keys) expect(await fleet.verdict(key)).toBe('VALID');
  expect([...asked]).toEqual([]);
  const { identityId } = await fleet.ok('identities.createIdentity', { externalId: 'bob', enabled: false });
  expect(await Promise.all(keys.map(({ key }) => fleet.verdict(key)))).toEqual([
    'VALID',
    'DISABLED',
    'VALID',
  ]);
  const record = (owner: string) => recordKey(SHARED_LOG, identityIdOf(owner));
  expect(asked).toEqual(new Set(['ada', 'bob', 'eve'].map(record)));
  await fleet.ok('identities.updateIdentity', { identityId, enabled: true });
  await fleet.ok('identities.deleteIdentity', { identityId });
  expect(await fleet.client.hget(head, 'ids')).toBe('0');
  monitor.disconnect();
});

test('keys of owners are accepted before anybody made the shared log, and its first fence waits for the lease of then', async () => {
  await fleet.client.del(head, log);
  await fleet.addVerifier();
  const { key } = await newKey('ada');
  expect(await fleet.verdict(key, { at: 1 })).toBe('VALID');
  await eventually(async () => (await fleet.client.hexists(head, 'c')) === 1);
  expect(Number(await fleet.client.hget(head, 'Lf'))).toBeGreaterThanOrEqual(10_000);
  await fleet.ok('identities.createIdentity', { externalId: 'ada', enabled: false });
  expect(await fleet.verdict(key, { at: 1 })).toBe('DISABLED');
});

test('where verifiers are too old for identities, none is made, and the audit log says so', async () => {
  const [externalId, apiId] = ['older', 'older'];
  await newKey(externalId, apiId);
  const api = apiKeys(apiId);
  // As it was with a key of before owners needed anything.
  await fleet.client.hset(api.head, 's', '3:0');
  await fleet.client.zadd(api.members, 0, '3.old');
  const refused = await fleet.admin('identities.createIdentity', { externalId, enabled: false });
  expect([refused.status, refused.body.error.code]).toEqual([409, 'VERIFIERS_TOO_OLD']);
  expect(refused.body.error.message).toContain('3.old');
  expect((await fleet.admin('identities.getIdentity', { externalId })).status).toBe(404);
  expect(await fleet.client.hget(api.head, 's')).toBe('3:0');
  const last = async () => (await fleet.ok('audit.listEvents', { limit: '1' })).events[0];
  expect(await last()).not.toMatchObject({ on: { externalId } });

  // It holds in APIs whose verifiers know of it; then it is to hold here too.
  await fleet.ok('identities.createIdentity', { externalId, enabled: false, apiIds: ['shop'] });
  const wider = await fleet.admin('identities.updateIdentity', { externalId, apiIds: null, enabled: true });
  expect(wider.body.error.code).toBe('VERIFIERS_TOO_OLD');
  expect(await fleet.ok('identities.getIdentity', { externalId })).toMatchObject({
    ...{ enabled: false, apiIds: ['shop'] },
  });
  expect(await last()).toMatchObject({ operation: 'identities.createIdentity', on: { externalId } });
  await fleet.client.zrem(api.members, '3.old');
  await fleet.ok('identities.updateIdentity', { externalId, apiIds: null });
  expect(await fleet.client.hget(api.head, 's')).toBe('4:1');
});

test('where a verifier of the shared log is too old, nothing is written', async () => {
  const sequence = (await fleet.client.hget(head, 's'))?.split(':').at(-1);
  await fleet.client.hset(head, 's', `3:${sequence}`);
  await fleet.client.zadd(members, sequence ?? '0', '3.old');
  const create = () => fleet.admin('identities.createIdentity', { externalId: 'zoe' });
  const refused = await create();
  expect([refused.body.error.code, refused.body.error.message]).toEqual([
    ...['VERIFIERS_TOO_OLD', expect.stringContaining('the shared log is followed by older ones')],
  ]);
  expect(await fleet.client.exists(recordKey(SHARED_LOG, identityIdOf('zoe')))).toBe(0);
  expect(await fleet.client.hget(head, 's')).toBe(`3:${sequence}`);
  await fleet.client.zrem(members, '3.old');
  expect((await create()).status).toBe(200);
});
