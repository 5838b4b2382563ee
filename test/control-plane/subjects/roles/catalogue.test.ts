import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { apiKeys, indexOf, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { PROTOCOL } from '../../../../shared/protocol/records/protocol.ts';
import { Fleet } from '../../../harness/fleet.ts';

/** The catalogue of permissions, with one verifier. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
});
afterAll(() => fleet.stop());

const create = (fields: object) => fleet.ok('permissions.createPermission', fields);
const list = (): Promise<{ id: string }[]> => fleet.ok('permissions.listPermissions');
const remove = (permissionId: string) => fleet.ok('permissions.deletePermission', { permissionId });

test('permissions have slugs and a listing in order', async () => {
  const first = { name: 'Write files', slug: 'files.write', description: 'all of them' };
  expect(await create(first)).toEqual({ permissionId: 'files.write' });
  expect(await create({ name: 'files.read' })).toEqual({ permissionId: 'files.read' });
  await fleet.ok('permissions.createRole', { name: 'files.read' });
  await fleet.ok('identities.createIdentity', { externalId: 'files.read' });
  const shown = [
    { id: 'files.write', ...first, sequence: 0 },
    { id: 'files.read', name: 'files.read', slug: 'files.read', sequence: 0 },
  ];
  expect(await list()).toEqual(shown);
  for (const each of shown)
    expect(await fleet.ok('permissions.getPermission', { permissionId: each.id })).toEqual(each);
  expect(await fleet.ok('permissions.listRoles')).toHaveLength(1);
  const { events } = await fleet.ok('audit.listEvents');
  expect(events.find(({ on }: { on: object }) => 'permissionId' in on)).toMatchObject({
    ...{ operation: 'permissions.createPermission', on: { permissionId: 'files.read' } },
    after: { name: 'files.read' },
  });
  expect((await fleet.ok('identities.listIdentities')).total).toBe(1);
});

test('makes one of a slug also in two calls at once', async () => {
  const calls = Array.from({ length: 5 }, () =>
    fleet.admin('permissions.createPermission', { name: 'once' }),
  );
  const statuses = (await Promise.all(calls)).map(({ status }) => status).sort();
  expect(statuses.filter((status) => status !== 409).length).toBeLessThanOrEqual(1);
  await fleet.admin('permissions.createPermission', { name: 'once' });
  expect((await list()).filter(({ id }) => id === 'once')).toHaveLength(1);
  const redis = new Redis(fleet.redisUrl);
  const changes = () => redis.hget(apiKeys(SHARED_LOG).head, 's');
  const before = await changes();
  const again = await fleet.admin('permissions.createPermission', { name: 'Other', slug: 'once' });
  expect([again.status, again.body.error.message]).toEqual([409, 'slug: there is a permission once already']);
  // Nothing is written for it, which followers would have to hear of.
  expect(await changes()).toBe(before);
  redis.disconnect();
});

test('a deleted permission is in no role any more', async () => {
  await create({ name: 'gone' });
  const role = await fleet.ok('permissions.createRole', { name: 'both', permissions: ['gone', 'stays'] });
  await fleet.ok('permissions.createRole', { name: 'other', permissions: ['stays'] });
  const byRole = await fleet.ok('keys.createKey', { apiId: 'shop', roles: ['both'] });
  const itself = await fleet.ok('keys.createKey', { apiId: 'shop', permissions: ['gone'] });
  const asked = { authorization: { permissions: 'gone' } };
  for (const { key } of [byRole, itself]) expect(await fleet.verdict(key, asked)).toBe('VALID');
  const { sequence: before } = (
    await fleet.ok('permissions.setRolePermissions', {
      roleId: role.roleId,
      permissions: ['gone', 'stays'],
    })
  ).propagation;
  expect((await remove('gone')).propagation).toMatchObject({ state: 'complete', sequence: before + 2 });
  const { body } = await fleet.verifyOnce(byRole.key, asked);
  // A slow machine may have no verdict at this instant, but never an older one.
  expect([undefined, 'INSUFFICIENT_PERMISSIONS']).toContain(body.code);
  expect(await fleet.verdict(byRole.key, asked)).toBe('INSUFFICIENT_PERMISSIONS');
  expect(await fleet.verdict(byRole.key, { authorization: { permissions: 'stays' } })).toBe('VALID');
  expect(await fleet.verdict(itself.key, asked)).toBe('VALID');
  const { events } = await fleet.ok('audit.listEvents');
  expect(events[0]).toMatchObject({
    ...{ operation: 'permissions.deletePermission', on: { permissionId: 'gone' } },
    after: { roles: [role.roleId] },
  });
  for (const [operation, input] of [
    ['permissions.getPermission', { permissionId: 'gone' }],
    ['permissions.deletePermission', { permissionId: 'gone' }],
  ] as const)
    expect((await fleet.admin(operation, input)).status).toBe(404);
  expect(await create({ name: 'gone' })).toEqual({ permissionId: 'gone' });
});

test('is apart from what followers need and bounded', async () => {
  const index = indexOf(SHARED_LOG, 'permission_');
  expect(index).not.toBe(apiKeys(SHARED_LOG).index);
  await create({ name: 'last' });
  const redis = new Redis(fleet.redisUrl);
  const there = await redis.zcard(index);
  const others = Array.from({ length: 1000 - there }, (_, i) => `x${i}`);
  await redis.zadd(index, ...others.flatMap((id) => [1e6, id]));
  const refused = await fleet.admin('permissions.createPermission', { name: 'one-more' });
  await redis.zrem(index, ...others);
  redis.disconnect();
  expect([refused.status, refused.body.error.message]).toEqual([409, 'there are 1000 permissions already']);
});

test('holds no more than can be listed', async () => {
  const redis = new Redis(fleet.redisUrl);
  const [index, there] = [indexOf(SHARED_LOG, 'permission_'), (await list()).length];
  const others = Array.from({ length: 997 - there }, (_, i) => `x${i}`);
  await redis.zadd(index, ...others.flatMap((id) => [0, id]));
  const calls = Array.from({ length: 16 }, (_, i) =>
    fleet.admin('permissions.createPermission', { name: `full.${i}` }),
  );
  const statuses = (await Promise.all(calls)).map(({ status }) => status).sort();
  expect(statuses).toEqual([...Array(3).fill(200), ...Array(13).fill(409)]);
  expect(await redis.zcard(index)).toBe(1000);
  await redis.zrem(index, ...others);
  redis.disconnect();
});

test('tells an incomplete delete, done by a retry', async () => {
  await create({ name: 'slow' });
  await fleet.ok('permissions.createRole', { name: 'slowly', permissions: ['slow'] });
  const redis = new Redis(fleet.redisUrl);
  const { members } = apiKeys(SHARED_LOG);
  await redis.zadd(members, '0', `${PROTOCOL}.silent`);
  const hurried = () => fleet.admin('permissions.deletePermission', { permissionId: 'slow', waitMs: 0 });
  const { status, body } = await hurried();
  expect([status, body.error?.message]).toEqual([503, expect.stringContaining('send the call again')]);
  // Nobody was thrown out for it.
  expect(await redis.zscore(members, `${PROTOCOL}.silent`)).toBe('0');
  expect((await hurried()).body.propagation).toMatchObject({ state: 'pending' });
  await redis.zrem(members, `${PROTOCOL}.silent`);
  redis.disconnect();
});
