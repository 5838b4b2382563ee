import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

/** Two verifiers, and permissions that keys have themselves. */
let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env: { USAGE_PERIOD_MS: '100', LOOKUP_WAIT_MS: '5000' } });
});
afterAll(() => fleet.stop());

const create = (fields: object) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });

/** The answer of one verifier, asked again while it cannot decide, which callers must bear. */
async function ask(at: number, key: string, fields: object = {}) {
  const once = () => fleet.post(`${fleet.verifiers[at]?.address}/v1/keys.verifyKey`, { key, ...fields });
  let answer = await once();
  await fleet.until(async () => {
    if (answer.status !== 503) return true;
    answer = await once();
    return false;
  });
  return answer;
}
const verify = async (at: number, key: string, permissions?: unknown, fields: object = {}) =>
  (
    await ask(at, key, {
      ...(permissions === undefined ? {} : { authorization: { permissions } }),
      ...fields,
    })
  ).body;
const codes = async (key: string, permissions: unknown) =>
  Promise.all([0, 1].map(async (at) => (await verify(at, key, permissions)).code));
const VALID = ['VALID', 'VALID'];
const REFUSED = ['INSUFFICIENT_PERMISSIONS', 'INSUFFICIENT_PERMISSIONS'];

describe('a key', () => {
  test('is accepted for what it may do, and says it', async () => {
    const { key, keyId } = await create({
      name: 'Ada',
      permissions: ['files.write', 'files.read', 'files.read'],
    });
    const permissions = ['files.read', 'files.write'];
    for (let round = 0; round < 2; round++) {
      expect(await verify(0, key)).toMatchObject({ valid: true, code: 'VALID', permissions });
      expect(await verify(0, key, 'files.read AND (files.delete OR files.write)')).toMatchObject({
        ...{ valid: true, code: 'VALID', keyId, name: 'Ada', permissions },
      });
      expect(await verify(0, key, { and: ['files.read', { or: ['files.delete'] }] })).toMatchObject({
        ...{ valid: false, code: 'INSUFFICIENT_PERMISSIONS', keyId, enabled: true, permissions },
      });
    }
    expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ permissions });
    expect((await fleet.ok('apis.listKeys', { apiId: 'shop' })).keys).toContainEqual(
      expect.objectContaining({ keyId, permissions }),
    );
  });

  test('without any is refused, and shows none', async () => {
    const { key, keyId } = await create({});
    expect(await codes(key, 'files.read')).toEqual(REFUSED);
    expect(await verify(0, key)).not.toHaveProperty('permissions');
    expect(await fleet.ok('keys.getKey', { keyId })).not.toHaveProperty('permissions');
  });

  test('is judged for API, state and expiry first', async () => {
    const { key, keyId } = await create({ permissions: ['a'], expires: Date.now() + 3_600_000 });
    expect(await verify(0, key, 'b', { apiId: 'other' })).toEqual({
      ...{ valid: false, code: 'FORBIDDEN', requestId: expect.any(String) },
    });
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(await codes(key, 'b')).toEqual(['DISABLED', 'DISABLED']);
    expect(await verify(0, 'shop_none', 'b')).toMatchObject({ code: 'NOT_FOUND' });
  });

  test('is judged for them before credits and limits', async () => {
    const limited = { ratelimit: { limit: 1, duration: 86_400_000 }, remaining: 1 };
    const { key } = await create({ permissions: ['a'], ...limited });
    for (const at of [0, 1, 0, 1]) {
      const refused = await verify(at, key, 'b');
      expect(refused).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
      expect(refused).not.toHaveProperty('remaining');
      expect(refused).not.toHaveProperty('ratelimit');
    }
    expect(await verify(0, key, 'a')).toMatchObject({
      code: 'VALID',
      remaining: 0,
      ratelimit: { remaining: 0 },
    });
    expect(await verify(1, key, 'a')).toMatchObject({ code: 'RATE_LIMITED' });
    expect(await verify(1, key, 'b')).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
  });

  test('may have 100 permissions of 100 characters', async () => {
    const permissions = Array.from({ length: 100 }, (_, i) => String(i).padStart(100, '0'));
    const { key, keyId } = await create({ permissions });
    expect(await verify(0, key, { and: permissions })).toMatchObject({ code: 'VALID', permissions });
    await fleet.ok('keys.removePermissions', { keyId, permissions: permissions.slice(50) });
    expect(await codes(key, permissions[50])).toEqual(REFUSED);
    expect(await codes(key, { and: permissions.slice(0, 50) })).toEqual(VALID);
  });

  test('gives its permissions to its successor', async () => {
    const { keyId } = await create({ permissions: ['a'] });
    const { key } = await fleet.ok('keys.rerollKey', { keyId, expiration: 0 });
    expect([await codes(key, 'a'), await codes(key, 'b')]).toEqual([VALID, REFUSED]);
  });
});

test.each([
  [{}, 'authorization.permissions: required'],
  [null, 'authorization: must be an object'],
  [{ permissions: 'a', roles: 'b' }, 'authorization.roles: unknown field'],
  [{ permissions: null }, /^authorization\.permissions: must be a permission, or an object/],
  [{ permissions: 'a AND' }, 'authorization.permissions: expected a permission or a parenthesis'],
  [{ permissions: { and: [] } }, /^authorization\.permissions: must be a permission, or an object/],
])('a malformed authorization is 400: %j', async (authorization, message) => {
  const { status, body } = await ask(0, 'nobody', { authorization });
  expect({ status, code: body.error?.code }).toEqual({ status: 400, code: 'BAD_REQUEST' });
  if (typeof message === 'string') expect(body.error.message).toBe(message);
  else expect(body.error.message).toMatch(message);
});

describe('when the call returns, no verifier goes by what was before', () => {
  test('in updateKey, in each form', async () => {
    const { key, keyId } = await create({ permissions: ['a'] });
    expect(await codes(key, 'a')).toEqual(VALID);
    for (const [permissions, expected] of [
      [['b'], REFUSED],
      [[{ name: 'a', create: true }, { slug: 'b' }, { id: 'c' }], VALID],
      [[], REFUSED],
      [[{ id: 'a', name: 'b' }], VALID],
      [null, REFUSED],
    ] as const) {
      const { propagation } = await fleet.ok('keys.updateKey', { keyId, permissions });
      expect(propagation).toMatchObject({ state: 'complete' });
      expect(await codes(key, 'a')).toEqual(expected);
    }
    await fleet.ok('keys.updateKeys', { apiId: 'shop', keyIds: [keyId], permissions: [{ name: 'a' }] });
    expect(await codes(key, 'a')).toEqual(VALID);
    await fleet.ok('keys.updateKey', { keyId, name: 'Ada' });
    expect(await codes(key, 'a')).toEqual(VALID);
  });

  test('in add, set and removePermissions', async () => {
    const { key, keyId } = await create({});
    expect(await codes(key, 'a')).toEqual(REFUSED);
    const named = (...slugs: string[]) => slugs.map((slug) => ({ id: slug, name: slug }));
    expect(await fleet.ok('keys.addPermissions', { keyId, permissions: [{ name: 'b' }, 'a'] })).toEqual(
      named('a', 'b'),
    );
    expect(await codes(key, 'a AND b')).toEqual(VALID);
    expect(
      await fleet.ok('keys.addPermissions', { keyId, permissions: [{ name: 'a' }, { id: 'c' }] }),
    ).toEqual(named('a', 'b', 'c'));
    const removed = await fleet.ok('keys.removePermissions', {
      keyId,
      permissions: [{ slug: 'a' }, { name: 'z' }],
    });
    expect(removed.propagation).toMatchObject({ state: 'complete' });
    expect(await codes(key, 'a')).toEqual(REFUSED);
    expect(await codes(key, 'b AND c')).toEqual(VALID);
    expect(await fleet.ok('keys.setPermissions', { keyId, permissions: [{ slug: 'd' }] })).toEqual(
      named('d'),
    );
    expect([await codes(key, 'b OR c'), await codes(key, 'd')]).toEqual([REFUSED, VALID]);
    expect(await fleet.ok('keys.setPermissions', { keyId, permissions: [] })).toEqual([]);
    expect(await codes(key, 'd')).toEqual(REFUSED);
  });

  test('of simultaneous calls each gets what it asked', async () => {
    const { key, keyId } = await create({ permissions: ['first'] });
    const slugs = Array.from({ length: 8 }, (_, i) => `p${i}`);
    await Promise.all([
      ...slugs.map((slug) => fleet.ok('keys.addPermissions', { keyId, permissions: [slug] })),
      fleet.ok('keys.removePermissions', { keyId, permissions: ['first'] }),
    ]);
    expect(await codes(key, { and: slugs })).toEqual(VALID);
    expect(await codes(key, 'first')).toEqual(REFUSED);
  });
});

test('refuses more than a key has room for', async () => {
  const permissions = Array.from({ length: 99 }, (_, i) => `p${i}`);
  const { keyId } = await create({ permissions });
  const answer = await fleet.admin('keys.addPermissions', { keyId, permissions: ['x', 'y'] });
  expect(answer.status).toBe(400);
  expect(answer.body.error.message).toBe('permissions: a key has at most 100');
  expect((await fleet.ok('keys.getKey', { keyId })).permissions).toHaveLength(99);
});

test('an incomplete change is 503 and written', async () => {
  const impatient = await Fleet.start({ verifiers: 0, env: { FENCE_WAIT_MS: '100' } });
  try {
    const { keyId } = await impatient.ok('keys.createKey', { apiId: 'shop', permissions: ['a'] });
    // It is registered, and never says anything.
    await impatient.client.zadd('kf:{shop}:members', 0, '3.away');
    const { status, body } = await impatient.admin('keys.setPermissions', { keyId, permissions: ['b'] });
    expect(status).toBe(503);
    expect(body.error.message).toMatch(
      /^the change is written as \d+ but not complete yet; send the call again/,
    );
    expect(await impatient.ok('keys.getKey', { keyId })).toMatchObject({ permissions: ['b'] });
    const removed = await impatient.ok('keys.removePermissions', { keyId, permissions: ['b'] });
    expect(removed.propagation).toMatchObject({ state: 'pending' });
  } finally {
    await impatient.stop();
  }
});

test('imported keys have theirs', async () => {
  const { results } = await fleet.ok('keys.importKeys', {
    apiId: 'shop',
    keys: [{ sha256: 'ab'.repeat(32), permissions: ['b', 'a'] }],
  });
  const { keyId } = results[0];
  expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ permissions: ['a', 'b'] });
});

test('usage counts refusals, the audit log grants', async () => {
  const { key, keyId } = await create({ permissions: ['a'] });
  await verify(0, key, 'b');
  await fleet.until(async () => {
    const { verifications } = await fleet.ok('keys.getVerifications', { keyId });
    return verifications.at(-1).insufficientPermissions === 1;
  });
  await fleet.ok('keys.addPermissions', { keyId, permissions: ['b'] });
  const { events } = await fleet.ok('audit.listEvents', { keyId });
  expect(events[0]).toMatchObject({
    operation: 'keys.addPermissions',
    before: { permissions: ['a'] },
    after: { permissions: ['a', 'b'] },
  });
});
