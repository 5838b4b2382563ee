import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

/** Roles with limits, at two verifiers. */
let fleet: Fleet;
const DAY_MS = 86_400_000;
const perDay = (limit: number, more: object = {}) => ({
  ...{ name: 'requests', limit, duration: DAY_MS, autoApply: true },
  ...more,
});

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env: { LOOKUP_WAIT_MS: '5000' } });
});
afterAll(() => fleet.stop());

const createRole = async (name: string, ratelimits: object[] = []) =>
  (await fleet.ok('permissions.createRole', { name, ratelimits })).roleId as string;
const createKey = async (fields: object, apiId = 'shop') =>
  (await fleet.ok('keys.createKey', { apiId, ...fields })) as { key: string; keyId: string };
const setLimits = async (roleId: string, ratelimits: object[]) => {
  const { propagation } = await fleet.ok('permissions.setRoleLimits', { roleId, ratelimits });
  expect(propagation.state).toBe('complete');
};

/** Uses keys in turn, at one verifier and then the other. @returns how many uses were accepted */
async function accepted(uses: number, ...keys: string[]): Promise<number> {
  let valid = 0;
  for (let i = 0; i < uses; i++) {
    const code = await fleet.verdict(keys[i % keys.length] ?? '', { at: (i >> 1) % 2 });
    expect(['VALID', 'RATE_LIMITED']).toContain(code);
    if (code === 'VALID') valid++;
  }
  return valid;
}

test('each key has the limits of its role', async () => {
  await createRole('each', [perDay(3)]);
  const [one, other] = [await createKey({ roles: ['each'] }), await createKey({ roles: ['each'] })];
  expect(await accepted(5, one.key)).toBe(3);
  expect(await accepted(5, other.key)).toBe(3);
  const { body } = await fleet.verify(one.key);
  expect(body.ratelimits).toMatchObject([{ name: 'requests', limit: 3, remaining: 0 }]);
});

test('keys of an identity share a limit per identity', async () => {
  const roleId = await createRole('shared', [perDay(4, { per: 'identity' })]);
  expect((await fleet.ok('permissions.getRole', { roleId })).ratelimits).toEqual([
    { ...perDay(4), async: true, per: 'identity' },
  ]);
  await fleet.ok('identities.createIdentity', { externalId: 'ada' });
  const one = await createKey({ externalId: 'ada', roles: ['shared'] });
  const other = await createKey({ externalId: 'ada', roles: ['shared'] }, 'books');
  const stranger = await createKey({ externalId: 'nobody', roles: ['shared'] });
  expect(await accepted(10, one.key, other.key)).toBe(4);
  expect(await accepted(6, stranger.key)).toBe(4);
});

test("a key's limit goes before its identity's and its roles'", async () => {
  await createRole('small', [perDay(2), perDay(1, { name: 'reports' })]);
  await createRole('large', [perDay(6), perDay(4, { name: 'reports', duration: 2 * DAY_MS })]);
  const both = await createKey({ roles: ['small', 'large'] });
  expect(await accepted(9, both.key)).toBe(4); // reports: four in two days are more than one a day
  const own = await createKey({ roles: ['small'], ratelimits: [perDay(5), perDay(9, { name: 'reports' })] });
  expect(await accepted(7, own.key)).toBe(5);
  await fleet.ok('identities.createIdentity', {
    externalId: 'eve',
    ratelimits: [perDay(3), perDay(9, { name: 'reports' })],
  });
  const eve = await createKey({ externalId: 'eve', roles: ['small', 'large'] });
  expect(await accepted(7, eve.key)).toBe(3);
});

test('one call changes the limits of all keys', async () => {
  const roleId = await createRole('plan', [perDay(2)]);
  const keys = await Promise.all(Array.from({ length: 20 }, () => createKey({ roles: ['plan'] })));
  for (const { key } of keys) expect(await accepted(3, key)).toBe(2);
  await setLimits(roleId, [perDay(5)]);
  for (const { key } of keys) expect(await accepted(4, key)).toBe(3);
  await setLimits(roleId, [perDay(1)]);
  for (const { key } of keys) expect(await accepted(1, key)).toBe(0);
  await setLimits(roleId, []);
  for (const { key } of keys) expect(await accepted(2, key)).toBe(2);
});

test('a lower limit holds for what was granted before', async () => {
  const roleId = await createRole('slices', [perDay(100_000)]);
  const { key } = await createKey({ roles: ['slices'] });
  expect(await accepted(200, key)).toBe(200); // both verifiers have a slice by now
  await setLimits(roleId, [perDay(201)]);
  expect(await accepted(10, key)).toBeLessThanOrEqual(1);
});

test('a customer moves to another plan', async () => {
  await createRole('free', [perDay(1, { per: 'identity' })]);
  await createRole('pro', [perDay(4, { per: 'identity' })]);
  await fleet.ok('permissions.createRole', { name: 'export', permissions: ['files.export'] });
  const { identityId } = await fleet.ok('identities.createIdentity', {
    externalId: 'wayne',
    roles: ['free'],
  });
  const { key, keyId } = await createKey({ externalId: 'wayne' });
  expect(await accepted(2, key)).toBe(1);
  const answer = await fleet.ok('identities.updateIdentity', { identityId, roles: ['pro', 'export'] });
  expect(answer).toMatchObject({ roles: ['export', 'pro'], propagation: { state: 'complete' } });
  const { body } = await fleet.verify(key, { authorization: { permissions: 'files.export' } });
  expect(body).toMatchObject({ code: 'VALID', permissions: ['files.export'] });
  const { rules } = await fleet.ok('keys.explain', { keyId, permissions: 'files.export' });
  expect(rules.map(({ detail }: { detail: string }) => detail)).toEqual(
    expect.arrayContaining([
      'files.export: by role export',
      'requests of the role pro: 4 a day, 2 left, takes 1',
    ]),
  );
  expect(await accepted(3, key)).toBe(2);
  await fleet.ok('identities.updateIdentity', { identityId, roles: [] });
  expect(await accepted(2, key)).toBe(2);
  expect(await fleet.verdict(key, { authorization: { permissions: 'files.export' } })).toBe(
    'INSUFFICIENT_PERMISSIONS',
  );
});

test('refuses limits that it cannot keep', async () => {
  const refused = async (ratelimits: object[]) =>
    (await fleet.admin('permissions.createRole', { name: 'bad', ratelimits })).body.error.message;
  expect(await refused([perDay(1, { per: 'api' })])).toMatch(/^ratelimits\.0\.per: /);
  expect(await refused([perDay(0)])).toMatch(/^ratelimits\.0\.limit: /);
  expect(await refused([perDay(1), perDay(2)])).toBe('ratelimits: must contain requests only once');
  expect(await refused([perDay(1, { name: 'default' })])).toMatch(/must not name a limit default/);
  const per = { apiId: 'shop', ratelimits: [perDay(1, { per: 'identity' })] };
  expect((await fleet.admin('keys.createKey', per)).body.error.message).toMatch(/per/);
  const none = { externalId: 'bad', roles: ['nothing'] };
  expect((await fleet.admin('identities.createIdentity', none)).body.error.message).toBe(
    'roles.0: there is no role nothing',
  );
});
