import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { Unkey } from 'unkey-api-2';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';

/** What the client of today does to a key that is there. */
let fleet: Fleet;
let admin: Unkey;

beforeAll(async () => {
  fleet = await Fleet.start({ env: { USAGE_PERIOD_MS: '100', FOREIGN_KEYS: 'true' } });
  const serverURL = fleet.controlPlanes[0]?.address ?? '';
  admin = new Unkey({ rootKey: ROOT_KEY, serverURL, retryConfig: { strategy: 'none' } });
});
afterAll(() => fleet.stop());

const create = async (fields: object = {}) =>
  (await admin.keys.createKey({ apiId: randomUUID(), ...fields })).data;

const refusal = async (call: Promise<unknown>) =>
  call.then(
    () => expect.unreachable('it was not refused'),
    ({ statusCode, body }: { statusCode: number; body: string }) => ({
      status: statusCode,
      ...(JSON.parse(body) as { error: { detail: string; errors?: { location: string }[] } }).error,
    }),
  );
const NOT_THERE = { status: 404, title: 'Not Found' };
const keyId = 'key_none';

describe('a key', () => {
  test.each([true, false])('is deleted for good, permanent or not: %s', async (permanent) => {
    const created = await create();
    expect((await admin.keys.deleteKey({ keyId: created.keyId, permanent })).data).toEqual({});
    expect((await fleet.verify(created.key)).body.code).toBe('NOT_FOUND');
    expect(await refusal(admin.keys.deleteKey({ keyId: created.keyId }))).toMatchObject(NOT_THERE);
  });

  test('gets a new secret, and the old one ends', async () => {
    const old = await create({ name: 'Ada' });
    const { data } = await admin.keys.rerollKey({ keyId: old.keyId, expiration: 0 });
    expect(data.keyId).not.toBe(old.keyId);
    expect((await fleet.verify(old.key)).body.valid).toBe(false);
    expect((await fleet.verify(data.key)).body.valid).toBe(true);
    expect((await admin.keys.getKey({ keyId: data.keyId })).data.name).toBe('Ada');
    const again = admin.keys.rerollKey({ keyId: old.keyId, expiration: 0 });
    expect(await refusal(again)).toMatchObject({ status: 409 });
    expect(await refusal(admin.keys.rerollKey({ keyId: data.keyId, expiration: -1 }))).toMatchObject({
      status: 400,
      errors: [{ location: 'body.expiration' }],
    });
    expect(await refusal(admin.keys.rerollKey({ keyId, expiration: 0 }))).toMatchObject(NOT_THERE);
  });

  test('is found by its secret', async () => {
    const { keyId, key } = await create({ meta: { plan: 'pro' } });
    expect((await admin.keys.whoami({ key })).data).toMatchObject({ keyId, meta: { plan: 'pro' } });
    const stranger = await refusal(admin.keys.whoami({ key: 'somebody-else' }));
    expect(stranger).toMatchObject(NOT_THERE);
    expect(stranger.detail).not.toContain('somebody-else');
  });

  test('has credits to set, add and take, with refill', async () => {
    const refill = { interval: 'monthly', amount: 100, refillDay: 15 } as const;
    const { keyId } = await create({ credits: { remaining: 10, refill } });
    const change = async (operation: 'set' | 'increment' | 'decrement', value?: number | null) =>
      (await admin.keys.updateCredits({ keyId, operation, ...(value === undefined ? {} : { value }) })).data;
    expect(await change('increment', 5)).toEqual({ remaining: 15, refill });
    expect(await change('decrement', 20)).toEqual({ remaining: 0, refill });
    expect(await change('set', 7)).toEqual({ remaining: 7, refill });
    expect(await refusal(change('increment', null))).toMatchObject({
      status: 400,
      errors: [{ location: 'body.value', message: 'must be a number where operation is increment' }],
    });
    expect(await change('set', null)).toEqual({ remaining: null });
    expect((await admin.keys.getKey({ keyId })).data.credits).toBeUndefined();
    expect(await refusal(change('increment', 1))).toMatchObject({ status: 400 });
    const none = admin.keys.updateCredits({ keyId: 'key_none', operation: 'set', value: 1 });
    expect(await refusal(none)).toMatchObject(NOT_THERE);
  });
});

describe('permissions of a key', () => {
  test('are added, replaced, removed and named', async () => {
    const { keyId } = await create();
    const slug = `files.${randomUUID()}`;
    const named = { name: 'Read files', slug, description: 'all of them' };
    await fleet.ok('permissions.createPermission', named);
    const [catalogued, plain] = [
      { id: slug, ...named },
      { id: 'b', name: 'b', slug: 'b' },
    ];
    const added = await admin.keys.addPermissions({ keyId, permissions: [slug, 'b', 'b'] });
    expect(added.data).toHaveLength(2);
    expect(added.data).toEqual(expect.arrayContaining([catalogued, plain]));
    const removed = await admin.keys.removePermissions({ keyId, permissions: ['b', 'not-there'] });
    expect(removed.data).toEqual([catalogued]);
    expect((await admin.keys.setPermissions({ keyId, permissions: ['b'] })).data).toEqual([plain]);
    expect((await admin.keys.setPermissions({ keyId, permissions: [] })).data).toEqual([]);
    expect((await admin.keys.getKey({ keyId })).data.permissions).toBeUndefined();
  });

  test('are refused if unknown or malformed', async () => {
    const permissions = ['a'];
    for (const call of [
      admin.keys.addPermissions({ keyId, permissions }),
      admin.keys.setPermissions({ keyId, permissions }),
      admin.keys.removePermissions({ keyId, permissions }),
    ])
      expect(await refusal(call)).toMatchObject(NOT_THERE);
    const created = await create();
    const bad = admin.keys.addPermissions({ keyId: created.keyId, permissions: ['a b'] });
    expect(await refusal(bad)).toMatchObject({ status: 400, errors: [{ location: 'body.permissions.0' }] });
  });
});

describe('roles of a key', () => {
  test('are added, replaced and taken away', async () => {
    const { keyId } = await create();
    const [writer, reader] = [`writer-${randomUUID()}`, `reader-${randomUUID()}`];
    const { roleId: id } = await fleet.ok('permissions.createRole', { name: writer, description: 'writes' });
    const { roleId } = await fleet.ok('permissions.createRole', { name: reader });
    const role = { id, name: writer, description: 'writes', permissions: [] };
    expect((await admin.keys.addRoles({ keyId, roles: [writer] })).data).toEqual([role]);
    const both = (await admin.keys.addRoles({ keyId, roles: [reader, writer] })).data;
    expect(both).toHaveLength(2);
    expect(both).toEqual(expect.arrayContaining([role, { id: roleId, name: reader, permissions: [] }]));
    expect((await admin.keys.removeRoles({ keyId, roles: [reader] })).data).toEqual([role]);
    expect((await admin.keys.removeRoles({ keyId, roles: [reader] })).data).toEqual([role]);
    expect((await admin.keys.setRoles({ keyId, roles: [reader] })).data).toEqual([
      { id: roleId, name: reader, permissions: [] },
    ]);
    // One that is not there spoils the others: the client's docs say so.
    const unknown = { keyId, roles: [writer, 'nobody'] };
    for (const call of [
      admin.keys.addRoles(unknown),
      admin.keys.setRoles(unknown),
      admin.keys.removeRoles(unknown),
    ])
      expect(await refusal(call)).toMatchObject({
        ...NOT_THERE,
        detail: expect.stringContaining('there is no role nobody'),
      });
    expect((await admin.keys.getKey({ keyId })).data.roles).toEqual([reader]);
    expect((await admin.keys.setRoles({ keyId, roles: [] })).data).toEqual([]);
  });

  test('are refused where there is no such key', async () => {
    for (const call of [
      admin.keys.addRoles({ keyId, roles: [] }),
      admin.keys.setRoles({ keyId, roles: [] }),
      admin.keys.removeRoles({ keyId, roles: [] }),
    ])
      expect(await refusal(call)).toMatchObject(NOT_THERE);
  });
});

test('keys move by their hashes, and once only', async () => {
  const apiId = randomUUID();
  const secrets = ['hex', 'base64', 'base64url'].map((encoding) => {
    const secret = `there_${randomBytes(16).toString('hex')}`;
    const hash = createHash('sha256')
      .update(secret)
      .digest(encoding as 'hex');
    return { secret, hash };
  });
  const [first, ...others] = secrets;
  const fields = { externalId: 'ada', meta: { plan: 'pro' }, permissions: ['a'], credits: { remaining: 5 } };
  const limits = [
    { name: 'default', limit: 100, duration: 60_000, autoApply: true },
    { name: 'tokens', limit: 5000, duration: 60_000 },
  ];
  const keys = [
    { hash: first?.hash ?? '', ...fields, ratelimits: limits },
    ...others.map(({ hash }) => ({ hash })),
  ];
  const { data } = await admin.keys.migrateKeys({ migrationId: 'hosted', apiId, keys });
  expect(data.failed).toEqual([]);
  expect(data.migrated.map(({ hash }) => hash)).toEqual(keys.map(({ hash }) => hash));
  for (const [i, { secret }] of secrets.entries())
    expect((await fleet.verify(secret)).body).toMatchObject({ valid: true, keyId: data.migrated[i]?.keyId });
  const shown = (await admin.keys.getKey({ keyId: data.migrated[0]?.keyId ?? '' })).data;
  expect(shown).toMatchObject({ meta: fields.meta, permissions: ['a'], credits: { remaining: 4 } });
  expect(shown.ratelimits?.map(({ name }) => name)).toEqual(['default', 'tokens']);

  const again = await admin.keys.migrateKeys({ migrationId: 'hosted', apiId, keys });
  expect(again.data).toEqual(data);
  const other = { migrationId: 'hosted', apiId: randomUUID(), keys: keys.slice(1, 2) };
  expect((await admin.keys.migrateKeys(other)).data).toEqual({ migrated: [], failed: [keys[1]?.hash] });
  const wrong = ['abc', 'x'.repeat(64), `${keys[1]?.hash.slice(0, -2)}!=`, ''];
  const some = [...wrong.slice(0, 2), keys[0]?.hash ?? '', ...wrong.slice(2)].map((hash) => ({ hash }));
  expect((await admin.keys.migrateKeys({ migrationId: 'hosted', apiId, keys: some })).data).toEqual({
    ...{ migrated: data.migrated.slice(0, 1), failed: wrong },
  });
});
