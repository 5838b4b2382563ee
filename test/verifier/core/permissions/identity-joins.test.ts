import { connect } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { apiKeys, recordKey, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { identityIdOf } from '#shared/rules/key-format.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { eventually } from '../../../harness/waiting.ts';

/** What verifiers ask Redis about the owners of keys, and what older ones among them mean. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
});
afterAll(() => fleet.stop());

const { head, log, members } = apiKeys(SHARED_LOG);
const newKey = (externalId?: string, apiId = 'shop') =>
  fleet.ok('keys.createKey', { apiId, ...(externalId ? { externalId } : {}) });

test('a fleet without owners follows no identities', async () => {
  const { key } = await newKey();
  expect(await fleet.verdict(key)).toBe('VALID');
  expect(await fleet.client.zcard(members)).toBe(0);
});

test('asks for owners only while identities exist', async () => {
  // A socket of its own: ioredis mixes up its replies where commands come before that of MONITOR.
  const monitor = connect(fleet.client.options.path ?? '');
  let commands = '';
  monitor.on('data', (chunk) => {
    commands += chunk.toString();
  });
  monitor.write('MONITOR\r\n');
  await eventually(() => commands.startsWith('+OK'));
  const asked = () => new Set(commands.match(new RegExp(`${recordKey(SHARED_LOG, 'identity_')}\\w+`, 'g')));
  const keys = await Promise.all(['ada', 'bob', 'eve'].map((owner) => newKey(owner)));
  for (const { key } of keys) expect(await fleet.verdict(key)).toBe('VALID');
  expect([...asked()]).toEqual([]);
  const { identityId } = await fleet.ok('identities.createIdentity', { externalId: 'bob', enabled: false });
  expect(await Promise.all(keys.map(({ key }) => fleet.verdict(key)))).toEqual([
    'VALID',
    'DISABLED',
    'VALID',
  ]);
  const record = (owner: string) => recordKey(SHARED_LOG, identityIdOf(owner));
  expect(asked()).toEqual(new Set(['ada', 'bob', 'eve'].map(record)));
  await fleet.ok('identities.updateIdentity', { identityId, enabled: true });
  await fleet.ok('identities.deleteIdentity', { identityId });
  expect(await fleet.client.hget(head, 'ids')).toBe('0');
  monitor.destroy();
});

test('accepts keys of owners before the shared log', async () => {
  await fleet.client.del(head, log);
  await fleet.addVerifier();
  const { key } = await newKey('ada');
  expect(await fleet.verdict(key, { at: 1 })).toBe('VALID');
  await eventually(async () => (await fleet.client.hexists(head, 'c')) === 1);
  expect(Number(await fleet.client.hget(head, 'Lf'))).toBeGreaterThanOrEqual(10_000);
  await fleet.ok('identities.createIdentity', { externalId: 'ada', enabled: false });
  expect(await fleet.verdict(key, { at: 1 })).toBe('DISABLED');
});
