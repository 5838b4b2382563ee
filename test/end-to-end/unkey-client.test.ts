import { randomUUID } from 'node:crypto';
import { and, Unkey as Newest, or } from '@unkey/api';
import { Unkey as Earlier } from 'unkey-api-0.33';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';

const resultOf = <T>({ result, error }: { result?: T; error?: unknown }): T => {
  if (!result) throw new Error(JSON.stringify(error));
  return result;
};

/** Clients that others wrote, unchanged: of each one instance for the control plane and one for the verifier. */
describe.each([
  ['0.38.0', Newest],
  ['0.33.1', Earlier],
] as const)('@unkey/api %s', (_version, Client) => {
  let fleet: Fleet;
  let admin: InstanceType<typeof Client>;
  let gateway: InstanceType<typeof Client>;

  beforeAll(async () => {
    fleet = await Fleet.start({ env: { USAGE_PERIOD_MS: '100', LOOKUP_WAIT_MS: '5000' } });
    const retry = { attempts: 1, backoff: () => 1 };
    admin = new Client({ rootKey: ROOT_KEY, baseUrl: fleet.controlPlanes[0]?.address ?? '', retry });
    gateway = new Client({ rootKey: 'never-looked-at', baseUrl: fleet.verifiers[0]?.address ?? '', retry });
  });
  afterAll(() => fleet.stop());

  test('a client creates, disables and enables a key', async () => {
    const { keyId, key } = resultOf(
      await admin.keys.create({
        apiId: 'e2e',
        name: 'Ada',
        prefix: 'e2e',
        externalId: 'ada',
        meta: { plan: 'pro' },
      }),
    );
    const verify = async () => resultOf(await gateway.keys.verify({ apiId: 'e2e', key }));
    expect(await verify()).toMatchObject({
      valid: true,
      code: 'VALID',
      keyId,
      enabled: true,
      meta: { plan: 'pro' },
      name: 'Ada',
    });

    resultOf(await admin.keys.update({ keyId, enabled: false }));
    expect(await verify()).toMatchObject({ valid: false, code: 'DISABLED', keyId, enabled: false });

    resultOf(await admin.keys.update({ keyId, enabled: true, name: 'Grace', meta: { plan: 'free' } }));
    expect(await verify()).toMatchObject({ valid: true, name: 'Grace', meta: { plan: 'free' } });

    expect(resultOf(await admin.keys.get({ keyId }))).toMatchObject({
      id: keyId,
      apiId: 'e2e',
      name: 'Grace',
      start: key.slice(0, 8),
    });
    resultOf(await admin.keys.delete({ keyId }));
    expect(await verify()).toEqual({ valid: false, code: 'NOT_FOUND', requestId: expect.any(String) });
  });

  test('a client lists each key once by pages', async () => {
    const created = new Set<string>();
    for (let i = 0; i < 23; i++) created.add(resultOf(await admin.keys.create({ apiId: 'pages' })).keyId);
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = resultOf(
        await admin.apis.listKeys({ apiId: 'pages', limit: 10, ...(cursor ? { cursor } : {}) }),
      );
      seen.push(...page.keys.map(({ id }) => id));
      expect(page.total).toBe(23);
      cursor = page.cursor;
    } while (cursor);
    expect(seen).toHaveLength(23);
    expect(new Set(seen)).toEqual(created);
  });

  test('a client makes, reads and deletes an API', async () => {
    const { apiId } = resultOf(await admin.apis.create({ name: 'billing' }));
    const { key } = resultOf(await admin.keys.create({ apiId }));
    expect(resultOf(await admin.apis.get({ apiId }))).toMatchObject({ id: apiId, name: 'billing' });
    expect(resultOf(await gateway.keys.verify({ apiId, key })).valid).toBe(true);
    resultOf(await admin.apis.delete({ apiId }));
    expect(resultOf(await gateway.keys.verify({ apiId, key })).valid).toBe(false);
  });

  test('a client asks how often a key was verified', async () => {
    const { keyId, key } = resultOf(await admin.keys.create({ apiId: 'counted' }));
    for (let i = 0; i < 3; i++) await fleet.verdict(key);
    const successes = async () => {
      const { verifications } = resultOf(await admin.keys.getVerifications({ keyId, granularity: 'day' }));
      return verifications.reduce((sum, { success }) => sum + success, 0);
    };
    await fleet.until(async () => (await successes()) === 3);
  });

  test('a client names an owner by the old name too', async () => {
    const { keyId, key } = resultOf(
      await admin.keys.create({ apiId: 'owned', ownerId: 'ada', environment: 'test' }),
    );
    await fleet.verdict(key);
    const verified = resultOf(await gateway.keys.verify({ apiId: 'owned', key, tags: ['path=/', 'other'] }));
    expect(verified).toMatchObject({ valid: true, keyId, ownerId: 'ada', environment: 'test' });
    expect(resultOf(await admin.keys.get({ keyId })).ownerId).toBe('ada');
    for (const owner of [{ ownerId: 'ada' }, { externalId: 'ada' }]) {
      const { keys } = resultOf(await admin.apis.listKeys({ apiId: 'owned', ...owner }));
      expect(keys.map(({ id }) => id)).toEqual([keyId]);
    }
    resultOf(await admin.keys.update({ keyId, ownerId: null }));
    expect(resultOf(await admin.keys.get({ keyId }))).not.toHaveProperty('ownerId');
    const tagged = async () =>
      (await fleet.ok('apis.getVerifications', { apiId: 'owned', groupBy: 'tag' })).verifications;
    await fleet.until(async () => (await tagged()).length === 2);
  });

  test('a client makes keys with the API defaults', async () => {
    const { apiId } = resultOf(await admin.apis.create({ name: 'defaults' }));
    await fleet.ok('apis.updateApi', { apiId, defaultPrefix: 'acme', defaultBytes: 32 });
    expect(resultOf(await admin.keys.create({ apiId })).key).toMatch(/^acme_\w{49}$/);
  });

  test('a client gives, spends and adds credits', async () => {
    const { keyId, key } = resultOf(
      await admin.keys.create({ apiId: 'e2e', remaining: 10, refill: { interval: 'daily', amount: 10 } }),
    );
    const verify = async () => resultOf(await gateway.keys.verify({ apiId: 'e2e', key }));
    for (let left = 9; left >= 0; left--)
      expect(await verify()).toMatchObject({ code: 'VALID', remaining: left });
    expect(await verify()).toMatchObject({ valid: false, code: 'USAGE_EXCEEDED', remaining: 0 });
    expect(resultOf(await admin.keys.updateRemaining({ keyId, op: 'increment', value: 5 }))).toMatchObject({
      remaining: 5,
    });
    expect(await verify()).toMatchObject({ code: 'VALID', remaining: 4 });
    expect(resultOf(await admin.keys.get({ keyId }))).toMatchObject({
      refill: { interval: 'daily', amount: 10 },
    });
  });

  test('a client gets all of a rerolled key', async () => {
    const { keyId, key } = resultOf(await admin.keys.create({ apiId: 'e2e', name: 'Eve', remaining: 3 }));
    const made = await fleet.ok('keys.rerollKey', { keyId, expiration: 60_000 });
    const verify = async (asked: string) => resultOf(await gateway.keys.verify({ apiId: 'e2e', key: asked }));
    expect(await verify(key)).toMatchObject({ code: 'VALID', keyId, remaining: 2 });
    expect(await verify(made.key)).toMatchObject({
      code: 'VALID',
      keyId: made.keyId,
      name: 'Eve',
      remaining: 1,
    });
    expect(resultOf(await admin.keys.get({ keyId: made.keyId }))).toMatchObject({
      name: 'Eve',
      remaining: 1,
    });
    expect(resultOf(await admin.keys.get({ keyId })).expires).toBe(made.endsAt);
  });

  test('a client gives, uses and removes a rate limit', async () => {
    const ratelimit = { limit: 2, duration: 86_400_000, async: false };
    const { keyId, key } = resultOf(await admin.keys.create({ apiId: 'e2e', ratelimit }));
    const verify = async () => resultOf(await gateway.keys.verify({ apiId: 'e2e', key }));
    for (const remaining of [1, 0])
      expect(await verify()).toMatchObject({ code: 'VALID', ratelimit: { limit: 2, remaining } });
    const refused = await verify();
    expect(refused).toMatchObject({ valid: false, code: 'RATE_LIMITED', ratelimit: { remaining: 0 } });
    expect(refused.ratelimit?.reset).toBeGreaterThan(Date.now());
    expect(resultOf(await admin.keys.get({ keyId })).ratelimit).toMatchObject(ratelimit);
    resultOf(await admin.keys.update({ keyId, ratelimit: null }));
    expect(await verify()).toMatchObject({ valid: true });
  });

  test('a client gives, asks and removes permissions', async () => {
    const { keyId, key } = resultOf(
      await admin.keys.create({ apiId: 'e2e', permissions: ['dns.read', 'dns.write'] }),
    );
    const verify = async (permissions: ReturnType<typeof and>) =>
      resultOf(await gateway.keys.verify({ apiId: 'e2e', key, authorization: { permissions } }));
    expect(await verify('dns.read')).toMatchObject({ valid: true, permissions: ['dns.read', 'dns.write'] });
    expect(await verify(and('dns.read', or('dns.delete', 'dns.write')))).toMatchObject({ valid: true });
    expect(await verify(and('dns.read', 'dns.delete'))).toMatchObject({
      ...{ valid: false, code: 'INSUFFICIENT_PERMISSIONS' },
    });
    resultOf(await admin.keys.update({ keyId, permissions: [{ name: 'dns.read' }] }));
    expect(await verify(or('dns.write', 'dns.delete'))).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
    if (!(admin instanceof Newest)) return;
    const added = await admin.keys.addPermissions({
      keyId,
      permissions: [{ name: 'dns.delete', create: true }],
    });
    expect(resultOf(added)).toContainEqual({ id: 'dns.delete', name: 'dns.delete' });
    expect(await verify(and('dns.read', 'dns.delete'))).toMatchObject({ valid: true });
    resultOf(await admin.keys.removePermissions({ keyId, permissions: [{ slug: 'dns.read' }] }));
    expect(await verify('dns.read')).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
    resultOf(await admin.keys.setPermissions({ keyId, permissions: [{ name: 'dns.read' }] }));
    expect(resultOf(await admin.keys.get({ keyId })).permissions).toEqual(['dns.read']);
    const { permissionId } = resultOf(
      await admin.permissions.createPermission({ name: 'Read DNS', slug: 'dns.list', description: 'all' }),
    );
    const catalogued = {
      ...{ id: permissionId, name: 'Read DNS', slug: 'dns.list', description: 'all' },
      sequence: 0,
    };
    expect(resultOf(await admin.permissions.getPermission({ permissionId }))).toEqual(catalogued);
    expect(resultOf(await admin.permissions.listPermissions())).toContainEqual(catalogued);
    resultOf(await admin.keys.addPermissions({ keyId, permissions: [{ id: permissionId }] }));
    expect(await verify('dns.list')).toMatchObject({ code: 'VALID' });
    resultOf(await admin.permissions.deletePermission({ permissionId }));
    resultOf(await admin.keys.setPermissions({ keyId, permissions: [{ name: 'dns.read' }] }));
    const { roleId } = resultOf(
      await admin.permissions.createRole({ name: 'e2e-role', description: 'All of DNS' }),
    );
    expect(resultOf(await admin.permissions.getRole({ roleId }))).toMatchObject({
      id: roleId,
      name: 'e2e-role',
    });
    expect(resultOf(await admin.permissions.listRoles())).toContainEqual(
      expect.objectContaining({ id: roleId, description: 'All of DNS' }),
    );
    const given = await admin.keys.addRoles({ keyId, roles: [{ name: 'e2e-role' }] });
    expect(resultOf(given)).toEqual([{ id: roleId, name: 'e2e-role' }]);
    expect(resultOf(await admin.keys.get({ keyId })).roles).toEqual(['e2e-role']);
    resultOf(await admin.keys.removeRoles({ keyId, roles: [{ id: roleId }] }));
    expect(resultOf(await admin.keys.setRoles({ keyId, roles: [{ id: roleId }] }))).toHaveLength(1);
    resultOf(await admin.permissions.deleteRole({ roleId }));
  });

  test('a client makes an identity for its keys', async () => {
    const externalId = `customer ${randomUUID()}`;
    const { key } = resultOf(await admin.keys.create({ apiId: 'e2e', externalId }));
    const { identityId } = resultOf(await admin.identities.create({ externalId, meta: { plan: 'pro' } }));
    expect(resultOf(await admin.identities.get({ externalId }))).toMatchObject({ id: identityId });
    expect(resultOf(await gateway.keys.verify({ apiId: 'e2e', key })).identity).toEqual({
      ...{ id: identityId, externalId, meta: { plan: 'pro' } },
    });
    const ratelimits = [{ name: 'tokens', limit: 5, duration: 3_600_000 }];
    expect(resultOf(await admin.identities.update({ identityId, ratelimits })).ratelimits).toMatchObject(
      ratelimits,
    );
    const tokens = { apiId: 'e2e', key, ratelimits: [{ name: 'tokens', cost: 3 }] };
    expect(resultOf(await gateway.keys.verify(tokens)).code).toBe('VALID');
    expect(resultOf(await gateway.keys.verify(tokens)).code).toBe('RATE_LIMITED');
    resultOf(await admin.identities.update({ identityId, meta: { plan: 'free' } }));
    expect(resultOf(await gateway.keys.verify({ apiId: 'e2e', key })).identity?.meta).toEqual({
      plan: 'free',
    });
    expect(resultOf(await admin.identities.list({})).identities).toContainEqual(
      expect.objectContaining({ id: identityId, externalId }),
    );
    resultOf(await admin.identities.delete({ identityId }));
    expect(resultOf(await gateway.keys.verify({ apiId: 'e2e', key }))).not.toHaveProperty('identity');
  });

  describe('a client gets an error it can read', () => {
    test('for a key that does not exist', async () => {
      const { error } = await admin.keys.update({ keyId: 'key_none', enabled: false });
      expect(error).toMatchObject({
        code: 'NOT_FOUND',
        message: 'key key_none not found',
        requestId: expect.any(String),
      });
    });

    test('for a wrong root key', async () => {
      const stranger = new Client({ rootKey: 'wrong', baseUrl: fleet.controlPlanes[0]?.address ?? '' });
      expect((await stranger.keys.create({ apiId: 'e2e' })).error).toMatchObject({ code: 'UNAUTHORIZED' });
    });

    test('for a rate limit in deprecated words', async () => {
      const limit = { limit: 2, duration: 1000 };
      for (const [ratelimit, message] of [
        [{ ...limit, type: 'fast' }, 'ratelimit.type: unknown field'],
        [{ ...limit, refillRate: 1 }, 'ratelimit.refillRate: unknown field'],
        [{ ...limit, refillInterval: 1000 }, 'ratelimit.refillInterval: unknown field'],
        [{ limit: 2 }, 'ratelimit.duration: give this or interval'],
      ] as const) {
        const { error } = await admin.keys.create({ apiId: 'e2e', ratelimit });
        expect(error).toMatchObject({ code: 'BAD_REQUEST', message });
      }
      const { key } = resultOf(await admin.keys.create({ apiId: 'e2e' }));
      const wrong = await gateway.keys.verify({ apiId: 'e2e', key, ratelimit: { cost: 2 } });
      expect(wrong.error).toMatchObject({ code: 'BAD_REQUEST', message: 'ratelimit: unknown field' });
      const half = await gateway.keys.verify({ apiId: 'e2e', key, ratelimits: [{ name: 'a', limit: 2 }] });
      expect(half.error?.message).toBe('ratelimits.0: limit and duration must be set together');
    });

    test('for an unknown field or role', async () => {
      const recovered = await admin.keys.create({ apiId: 'e2e', recoverable: true });
      expect(recovered.error).toMatchObject({ code: 'BAD_REQUEST', message: 'recoverable: unknown field' });
      const { error } = await admin.keys.create({ apiId: 'e2e', roles: ['admin'] });
      expect(error).toMatchObject({ code: 'NOT_FOUND', message: 'roles.0: there is no role admin' });
    });
  });
});
