import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { apiKeys, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { generateKey, hashSecret } from '#shared/rules/key-format.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { RedisNode } from '../../../harness/redis-nodes.ts';
import { scratch } from '../../../harness/scratch.ts';

/** Roles as the management API makes, gives and changes them; two verifiers follow. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2 });
});
afterAll(() => fleet.stop());

let made = 0;
const newRole = async (...permissions: string[]) => {
  const name = `role-${++made}`;
  return { name, roleId: (await fleet.ok('permissions.createRole', { name, permissions })).roleId };
};
const newKey = (fields: object = {}) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
/** What both verifiers answer, asked again while they cannot decide. */
async function verdicts(key: string) {
  return Promise.all([0, 1].map(async (at) => (await fleet.verify(key, { at })).body));
}
/** The same from memory, once and at once. */
const told = async (key: string) =>
  Promise.all([0, 1].map(async (at) => (await fleet.verifyOnce(key, { at })).body.permissions));

describe('a role', () => {
  test('permits its keys what it may, by name or id', async () => {
    const [a, b] = [await newRole('a'), await newRole('b')];
    const { key, keyId } = await newKey({ permissions: ['own'] });
    expect(await fleet.ok('keys.addRoles', { keyId, roles: [a.name, { id: b.roleId }] })).toEqual(
      expect.arrayContaining([
        { id: a.roleId, name: a.name },
        { id: b.roleId, name: b.name },
      ]),
    );
    const names = [a.name, b.name];
    for (const body of await verdicts(key))
      expect(body).toMatchObject({ code: 'VALID', permissions: ['a', 'b', 'own'], roles: names });
    expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ permissions: ['own'], roles: names });
    expect(await fleet.ok('keys.removeRoles', { keyId, roles: [{ name: a.name }] })).toMatchObject({
      propagation: { state: 'complete' },
    });
    for (const body of await verdicts(key)) expect(body).toMatchObject({ permissions: ['b', 'own'] });
    expect(await fleet.ok('keys.setRoles', { keyId, roles: [] })).toEqual([]);
    for (const body of await verdicts(key)) expect(body).not.toHaveProperty('roles');
    expect(await fleet.ok('keys.getKey', { keyId })).not.toHaveProperty('roles');
  });

  test('that was deleted takes no place from others', async () => {
    const old = await Promise.all(Array.from({ length: 100 }, () => newRole()));
    const { keyId } = await newKey({ roles: old.map(({ name }) => name) });
    const [last, ...others] = old;
    for (const { roleId } of others) await fleet.ok('permissions.deleteRole', { roleId });
    const { name } = await newRole();
    const now = await fleet.ok('keys.addRoles', { keyId, roles: [name] });
    expect(now.map((role: { name: string }) => role.name).sort()).toEqual([name, last?.name].sort());
    expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ roles: [name, last?.name].sort() });
  });

  test('changes and ends for all keys by one call', async () => {
    const { name, roleId } = await newRole('a');
    const keys = await Promise.all([newKey(), newKey({ apiId: 'books' })]);
    for (const { keyId } of keys) await fleet.ok('keys.addRoles', { keyId, roles: [name] });
    for (const { key } of keys)
      for (const body of await verdicts(key)) expect(body.permissions).toEqual(['a']);
    const changed = await fleet.ok('permissions.setRolePermissions', { roleId, permissions: ['c', 'b'] });
    expect(changed.propagation).toMatchObject({ state: 'complete' });
    // A slow machine may have no verdict at this instant, but never an older one.
    for (const { key } of keys)
      for (const slugs of await told(key)) expect([undefined, ['b', 'c']]).toContainEqual(slugs);
    for (const { key } of keys)
      for (const body of await verdicts(key)) expect(body.permissions).toEqual(['b', 'c']);
    await fleet.ok('permissions.deleteRole', { roleId });
    for (const { key } of keys)
      for (const body of await verdicts(key)) {
        expect(body.code).toBe('VALID');
        expect(body).not.toHaveProperty('permissions');
        expect(body).not.toHaveProperty('roles');
      }
    expect((await fleet.admin('permissions.getRole', { roleId })).status).toBe(404);
    const again = await fleet.ok('permissions.createRole', { name, permissions: ['z'] });
    expect(again.roleId).not.toBe(roleId);
    for (const { key } of keys)
      for (const body of await verdicts(key)) expect(body).not.toHaveProperty('roles');
  });

  test('tells how far its change has come', async () => {
    const { roleId } = await newRole('a');
    const { propagation } = await fleet.ok('permissions.setRolePermissions', { roleId, permissions: ['b'] });
    const sequence = String(propagation.sequence);
    expect(await fleet.ok('permissions.getRolePropagation', { roleId, sequence })).toMatchObject({
      propagation: { state: 'complete', sequence: propagation.sequence, laggards: [] },
    });
    const none = { roleId: 'role_none', sequence };
    expect((await fleet.admin('permissions.getRolePropagation', none)).status).not.toBe(200);
  });

  test('tells of its latest change, however old the log is', async () => {
    const directory = scratch('roles');
    const soon = ['--repl-diskless-sync-delay', '0'];
    const primary = await RedisNode.start(join(directory, 'primary'), soon);
    const { port } = primary;
    const replica = await RedisNode.start(join(directory, 'replica'), [
      '--replicaof',
      '127.0.0.1',
      `${port}`,
    ]);
    await primary.until(async () =>
      /state=online/.test(String(await primary.command('INFO', 'replication'))),
    );
    const patient = await Fleet.start({
      ...{ redisUrl: primary.url, verifiers: 0, env: { REDIS_REPLICAS: '1' } },
    });
    try {
      const { roleId } = await patient.ok('permissions.createRole', { name: 'r' });
      const change = { roleId, permissions: ['b'] };
      const { propagation } = await patient.ok('permissions.updateRole', change);
      const { keyId } = await patient.ok('keys.createKey', { apiId: 'shop' });
      const ofKey = await patient.ok('keys.updateKey', { keyId, name: 'k' });
      await primary.command('XTRIM', apiKeys('shop').log, 'MAXLEN', '0');
      const latest = { keyId, sequence: `${ofKey.propagation.sequence}` };
      expect(await patient.ok('keys.getPropagation', latest)).toMatchObject({
        propagation: { state: 'complete' },
      });
      await primary.command('XTRIM', apiKeys(SHARED_LOG).log, 'MAXLEN', '0');
      const { sequence } = propagation;
      const ask = (id: string) =>
        patient.admin('permissions.getRolePropagation', { roleId: id, sequence: `${sequence}` });
      expect((await ask(roleId)).body).toMatchObject({ propagation: { state: 'complete', sequence } });
      await patient.ok('permissions.updateRole', { roleId, permissions: ['c'] });
      await primary.command('XTRIM', apiKeys(SHARED_LOG).log, 'MAXLEN', '0');
      expect((await ask(roleId)).status).toBe(409);
    } finally {
      await patient.stop();
      await replica.stop();
      await primary.stop();
      rmSync(directory, { recursive: true, force: true });
    }
  });

  test('shows what it grants, listed by creation', async () => {
    const role = { name: 'shown', description: 'For all to see', permissions: [{ name: 'b' }, 'a'] };
    const { roleId } = await fleet.ok('permissions.createRole', role);
    const shown = {
      ...{ id: roleId, name: 'shown', description: 'For all to see' },
      permissions: [
        { id: 'a', name: 'a' },
        { id: 'b', name: 'b' },
      ],
      sequence: 0,
      ratelimits: [],
      concurrency: [],
    };
    expect(await fleet.ok('permissions.getRole', { roleId })).toEqual(shown);
    expect((await fleet.ok('permissions.listRoles')).at(-1)).toEqual(shown);
  });

  test('has a unique name, also if made twice at once', async () => {
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => fleet.admin('permissions.createRole', { name: 'only' })),
    );
    const codes = answers.map(({ body }) => body.error?.code ?? 'OK').sort();
    expect(codes).toEqual([...new Array(4).fill('CONFLICT'), 'OK']);
    const listed = await fleet.ok('permissions.listRoles');
    expect(listed.filter(({ name }: { name: string }) => name === 'only')).toHaveLength(1);
  });

  test('goes with its key when that is rerolled', async () => {
    const { name } = await newRole('a');
    const { keyId } = await newKey();
    await fleet.ok('keys.setRoles', { keyId, roles: [{ name }] });
    const { key } = await fleet.ok('keys.rerollKey', { keyId, expiration: 0 });
    for (const body of await verdicts(key)) expect(body).toMatchObject({ permissions: ['a'], roles: [name] });
  });

  test('is audited with what it granted and grants', async () => {
    const { roleId } = await newRole('a');
    await fleet.ok('permissions.setRolePermissions', { roleId, permissions: ['b'] });
    const { events } = await fleet.ok('audit.listEvents');
    expect(events[0]).toMatchObject({
      ...{ operation: 'permissions.setRolePermissions', on: { roleId } },
      ...{ before: { permissions: ['a'] }, after: { permissions: ['b'] } },
    });
  });
});

describe('roles of keys', () => {
  test('are given, changed and cleared', async () => {
    const [a, b] = [await newRole('a'), await newRole('b')];
    const { key, keyId } = await newKey({ roles: [b.name, a.name] });
    for (const body of await verdicts(key))
      expect(body).toMatchObject({ permissions: ['a', 'b'], roles: [a.name, b.name] });
    await fleet.ok('keys.updateKey', { keyId, name: 'Ada', roles: [{ id: b.roleId }] });
    for (const body of await verdicts(key)) expect(body).toMatchObject({ name: 'Ada', roles: [b.name] });
    await fleet.ok('keys.updateKeys', { apiId: 'shop', keyIds: [keyId], roles: [{ name: a.name }] });
    for (const body of await verdicts(key)) expect(body).toMatchObject({ permissions: ['a'] });
    await fleet.ok('keys.updateKey', { keyId, roles: null });
    for (const body of await verdicts(key)) expect(body).not.toHaveProperty('roles');
    expect(await fleet.ok('keys.getKey', { keyId })).not.toHaveProperty('roles');
  });

  test('are shown by name wherever keys are', async () => {
    const [kept, gone] = [await newRole('a'), await newRole('b')];
    const { key, keyId } = await newKey({ apiId: 'shown', roles: [gone.name, kept.name] });
    const plain = await newKey({ apiId: 'shown' });
    await fleet.ok('permissions.deleteRole', { roleId: gone.roleId });
    const { keys } = await fleet.ok('apis.listKeys', { apiId: 'shown' });
    expect(keys.map(({ id, roles }: { id: string; roles?: string[] }) => [id, roles])).toEqual([
      [keyId, [kept.name]],
      [plain.keyId, undefined],
    ]);
    expect(await fleet.ok('keys.whoami', { key })).toMatchObject({ keyId, roles: [kept.name] });
  });

  test('come with imports unless a role is unknown', async () => {
    const { name } = await newRole('a');
    const secrets = ['one', 'two', 'three'].map(() => generateKey(16, 'shop'));
    const { results } = await fleet.ok('keys.importKeys', {
      apiId: 'shop',
      keys: secrets.map((secret, i) => ({
        sha256: hashSecret(secret),
        foreign: false,
        roles: i === 1 ? [name, 'none'] : [name],
      })),
    });
    expect(results).toMatchObject([
      { result: 'created' },
      { result: 'refused', code: 'NOT_FOUND', message: 'roles.1: there is no role none' },
      { result: 'created' },
    ]);
    for (const at of [0, 2])
      for (const body of await verdicts(secrets[at] ?? '')) expect(body).toMatchObject({ roles: [name] });
    for (const body of await verdicts(secrets[1] ?? '')) expect(body.code).toBe('NOT_FOUND');
  });

  test('are 404 if unknown, and change nothing', async () => {
    const { keyId, key } = await newKey();
    for (const [operation, fields] of [
      ['keys.createKey', { apiId: 'nowhere' }],
      ['keys.updateKey', { keyId, enabled: false }],
      ['keys.updateKeys', { apiId: 'shop', keyIds: [keyId], enabled: false }],
    ] as const) {
      const { status, body } = await fleet.admin(operation, { ...fields, roles: ['none'] });
      expect([status, body.error.message], operation).toEqual([404, 'roles.0: there is no role none']);
    }
    for (const body of await verdicts(key)) expect(body.code).toBe('VALID');
    expect((await fleet.admin('apis.getApi', { apiId: 'nowhere' })).status).toBe(404);
  });
});

test('no key gets a role that does not exist', async () => {
  const { keyId } = await newKey();
  for (const role of ['none', { id: 'role_none' }]) {
    const { status, body } = await fleet.admin('keys.addRoles', { keyId, roles: [role] });
    expect([status, body.error.message]).toEqual([404, expect.stringMatching(/^roles\.0: there is no role/)]);
  }
  for (const operation of ['permissions.setRolePermissions', 'permissions.deleteRole'])
    expect(
      (await fleet.admin(operation, { roleId: 'role_none', permissions: [] })).status,
      operation,
    ).not.toBe(200);
});

test('changes of one key at once are all made', async () => {
  const { keyId } = await newKey();
  const roles = await Promise.all(Array.from({ length: 5 }, () => newRole('a')));
  await Promise.all(roles.map(({ name }) => fleet.ok('keys.addRoles', { keyId, roles: [name] })));
  expect((await fleet.ok('keys.getKey', { keyId })).roles).toHaveLength(5);
});

test('keeps all that many calls add at once', async () => {
  await fleet.addControlPlane();
  const { keyId } = await newKey();
  const roles = await Promise.all(Array.from({ length: 20 }, () => newRole()));
  const calls = roles.flatMap(({ name }, i) => [
    fleet.admin('keys.addPermissions', { keyId, permissions: [`p${i}`] }, { at: i % 2 }),
    fleet.admin('keys.addRoles', { keyId, roles: [name] }, { at: i % 2 }),
    fleet.admin('keys.addPermissions', { keyId, permissions: [`q${i}`] }, { at: i % 2 }),
  ]);
  expect((await Promise.all(calls)).map(({ status }) => status)).toEqual(new Array(60).fill(200));
  const key = await fleet.ok('keys.getKey', { keyId });
  expect([key.permissions.length, key.roles.length]).toEqual([40, 20]);
});
