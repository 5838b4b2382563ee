import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { recordKey, usageKey } from '../../../../shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';

let fleet: Fleet;
const ids: Record<string, string> = {};
const DAY_MS = 86_400_000;
const nowMs = Date.now();

beforeAll(async () => {
  fleet = await Fleet.start({ env: { USAGE_PERIOD_MS: '50' } });
  await fleet.ok('permissions.createRole', { name: 'night', permissions: ['a'] });
  await fleet.ok('permissions.createRole', { name: 'nights', permissions: ['b'] });
  for (const externalId of ['off', 'on']) await fleet.ok('identities.createIdentity', { externalId });
  const keys: Record<string, object> = {
    plain: {},
    disabled: { enabled: false, externalId: 'on' },
    expiring: { expires: nowMs + DAY_MS, externalId: 'on' },
    expired: { expires: nowMs + 2 * DAY_MS, roles: ['nights'] },
    stopped: { externalId: 'off', roles: ['night', 'nights'] },
    both: { externalId: 'off', enabled: false },
    used: { name: 'used' },
    unused: { name: 'unused' },
  };
  for (const [name, fields] of Object.entries(keys)) {
    const { enabled, ...others } = fields as { enabled?: boolean };
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', ...others });
    ids[name] = keyId;
    if (enabled === false) await fleet.ok('keys.updateKey', { keyId, enabled });
    if (name === 'used') {
      await fleet.verify(key);
      await fleet.verify(key, { authorization: { permissions: 'missing' } });
    }
    // Older than it is: created and used long ago.
    if (name === 'unused') {
      await fleet.client.hset(recordKey('shop', keyId), 'c', nowMs - 60 * DAY_MS);
      await fleet.client.hset(usageKey('shop', keyId), 't', nowMs - 40 * DAY_MS);
    }
    if (name === 'plain') await fleet.client.hset(recordKey('shop', keyId), 'c', nowMs - 20 * DAY_MS);
  }
  await fleet.ok('identities.updateIdentity', { externalId: 'off', enabled: false });
  await fleet.ok('keys.updateKey', { keyId: ids['expired'], expires: 1_000_000_000_000 });
  const foreign = { sha256: 'a'.repeat(64), name: 'foreign', foreign: true };
  const { results } = await fleet.ok('keys.importKeys', { apiId: 'shop', keys: [foreign] });
  ids['foreign'] = results[0].keyId;
  await fleet.until(
    async () => (await fleet.ok('keys.getKey', { keyId: ids['used'] })).lastRefusedAt !== undefined,
  );
});
afterAll(() => fleet.stop());

/** The names of the keys that a listing finds. */
async function listed(query: object): Promise<string[]> {
  const { keys } = await fleet.ok('apis.listKeys', { apiId: 'shop', ...query });
  const names = new Map(Object.entries(ids).map(([name, keyId]) => [keyId, name]));
  return keys.map(({ keyId }: { keyId: string }) => names.get(keyId));
}

describe.each(['createdAt', '-lastUsedAt'])('in order of %s, keys are found', (sort) => {
  const found = async (query: object) => (await listed({ ...query, sort })).sort();

  test('by the state in which verifiers see them', async () => {
    expect(await found({ state: 'disabled' })).toEqual(['both', 'disabled']);
    expect(await found({ state: 'identity_disabled' })).toEqual(['stopped']);
    expect(await found({ state: 'expired' })).toEqual(['expired']);
    expect(await found({ state: 'enabled' })).toEqual(['expiring', 'foreign', 'plain', 'unused', 'used']);
    expect(await found({ state: 'enabled', enabled: 'true', externalId: 'on' })).toEqual(['expiring']);
  });

  test('by role, name and id', async () => {
    expect(await found({ role: 'nights' })).toEqual(['expired', 'stopped']);
    const roles = await fleet.ok('permissions.listRoles', {});
    const night = roles.find(({ name }: { name: string }) => name === 'night');
    expect(await found({ role: night.id })).toEqual(['stopped']);
  });

  test('by their last use, and their end', async () => {
    const since = String(nowMs - 30 * DAY_MS);
    expect(await found({ lastUsedBefore: since })).toEqual(['unused']);
    expect(await found({ lastUsedBefore: String(nowMs - 10 * DAY_MS) })).toEqual(['plain', 'unused']);
    const neverUsed = await found({ neverUsed: 'true' });
    expect(neverUsed).toHaveLength(Object.keys(ids).length - 2);
    expect(neverUsed).not.toContain('used');
    expect(await found({ expiresBefore: String(nowMs + 1.5 * DAY_MS) })).toEqual(['expired', 'expiring']);
    expect(await found({ foreign: 'true' })).toEqual(['foreign']);
    expect(await found({ leaked: 'true' })).toEqual([]);
  });
});

test('a key shows its state and its last uses', async () => {
  const of = async (name: string) => fleet.ok('keys.getKey', { keyId: ids[name] });
  const states = Object.keys(ids).map(async (name) => [name, (await of(name)).state]);
  expect(Object.fromEntries(await Promise.all(states))).toEqual({
    ...{ plain: 'enabled', disabled: 'disabled', expiring: 'enabled', expired: 'expired' },
    ...{ stopped: 'identity_disabled', both: 'disabled', used: 'enabled', unused: 'enabled' },
    foreign: 'enabled',
  });
  const { lastUsedAt, lastRefusedAt } = await of('used');
  expect(lastUsedAt).toBeGreaterThanOrEqual(nowMs);
  expect(lastRefusedAt).toBeGreaterThanOrEqual(lastUsedAt);
  const { keys } = await fleet.ok('apis.listKeys', { apiId: 'shop', name: 'used' });
  expect(keys).toMatchObject([{ lastUsedAt, lastRefusedAt }]);
  expect(await of('disabled')).not.toHaveProperty('lastRefusedAt');
});

test('a key shows what it and its roles permit', async () => {
  const { keyId } = await fleet.ok('keys.createKey', {
    ...{ apiId: 'other', permissions: ['c'], roles: ['nights'], externalId: 'watch' },
  });
  await fleet.ok('identities.createIdentity', { externalId: 'watch', roles: ['night'] });
  expect((await fleet.ok('keys.getKey', { keyId })).effectivePermissions).toEqual(['a', 'b', 'c']);
  const { keys } = await fleet.ok('apis.listKeys', { apiId: 'other' });
  expect(keys[0]).not.toHaveProperty('effectivePermissions');
});

test('no use is asked for that is not kept', async () => {
  const refused = async (query: object) => {
    const { status, body } = await fleet.admin('apis.listKeys', { apiId: 'shop', ...query });
    return [status, body.error.message];
  };
  expect(await refused({ lastUsedBefore: String(nowMs - 32 * DAY_MS) })).toEqual([
    ...[400, 'lastUsedBefore: must be at most 31 days ago; earlier uses are not kept'],
  ]);
  expect(await refused({ state: 'disabled', enabled: 'true' })).toEqual([
    ...[400, 'enabled: no key that is disabled has enabled true; leave it out'],
  ]);
  expect(await refused({ role: 'nobody' })).toEqual([404, 'role: there is no role nobody']);
});
