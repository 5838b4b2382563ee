import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rootKeyDescendants, rootKeyIndex } from '../../../../shared/redis/redis-keys.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { FAILURES_PER_MINUTE: '0' } });
});
afterAll(() => fleet.stop());

describe('the Authorization header', () => {
  const statusWith = async (authorization: string) =>
    (await fleet.get(`${fleet.controlPlanes[0]?.address}/v1/apis.listApis`, { authorization })).status;

  test.each([`Bearer ${ROOT_KEY}`, `bearer ${ROOT_KEY}`, `BEARER   ${ROOT_KEY}`, `Bearer ${ROOT_KEY}  `])(
    'may be written %j',
    async (header) => {
      expect(await statusWith(header)).toBe(200);
    },
  );

  test.each([
    ROOT_KEY,
    `Bearer${ROOT_KEY}`,
    `Bearers ${ROOT_KEY}`,
    `Bearer ${ROOT_KEY} x`,
    `Bearer x ${ROOT_KEY}`,
    `Bearer x Bearer ${ROOT_KEY}`,
    `Basic Bearer ${ROOT_KEY}`,
    `Bearer ${ROOT_KEY},`,
    `Bearer ${ROOT_KEY.slice(0, -1)}`,
    `Bearer ${ROOT_KEY.toUpperCase()}`,
  ])('is refused as %j', async (header) => {
    expect(await statusWith(header)).toBe(401);
  });

  test('takes 512 characters and tells longer tokens', async () => {
    const messageFor = async (token: string) => {
      const headers = { authorization: `Bearer ${token}` };
      const { body } = await fleet.get(`${fleet.controlPlanes[0]?.address}/v1/apis.listApis`, headers);
      return body.error.message;
    };
    expect(await messageFor('x'.repeat(512))).toMatch(/unknown or disabled/);
    for (const token of ['x'.repeat(513), 'ä'.repeat(40), 'x\tx'])
      expect(await messageFor(token)).toMatch(/must be of the form/);
  });
});

test('disabling a root key stops all that it created, which cannot enable it, and enabling it brings them back', async () => {
  const permissions = ['root.*.create_root_key', 'root.*.update_root_key', 'root.*.read_root_key'];
  const make = (rootKey: string) =>
    fleet.ok('rootKeys.createRootKey', { name: 'n', permissions }, { rootKey });
  const parent = await make(ROOT_KEY);
  const child = await make(parent.key);
  const grandchild = await make(child.key);
  const statuses = () =>
    Promise.all(
      [parent, child, grandchild].map(
        async ({ key }) => (await fleet.admin('rootKeys.listRootKeys', {}, { rootKey: key })).status,
      ),
    );
  const set = (enabled: boolean, rootKey = ROOT_KEY) =>
    fleet.admin('rootKeys.updateRootKey', { rootKeyId: parent.rootKeyId, enabled }, { rootKey });
  expect(await statuses()).toEqual([200, 200, 200]);
  expect((await set(false)).status).toBe(200);
  expect(await statuses()).toEqual([401, 401, 401]);
  for (const { key } of [child, grandchild]) expect((await set(true, key)).status).toBe(401);
  expect((await set(true)).status).toBe(200);
  expect(await statuses()).toEqual([200, 200, 200]);
  let { key } = grandchild;
  for (let n = 3; n <= 8; n++) ({ key } = await make(key));
  const { status } = await fleet.admin(
    'rootKeys.createRootKey',
    { name: 'n', permissions },
    { rootKey: key },
  );
  expect(status).toBe(409);
});

test('a deletion deletes all descendants, no others', async () => {
  const permissions = ['root.*.create_root_key', 'root.*.delete_root_key', 'api.*.read_api'];
  const make = (rootKey: string) =>
    fleet.admin('rootKeys.createRootKey', { name: 'n', permissions }, { rootKey });
  const made = async (rootKey: string) => (await make(rootKey)).body;
  const before = await fleet.client.hlen(rootKeyIndex);
  const admin = await made(ROOT_KEY);
  const delegate = await made(admin.key);
  const [child, other] = [await made(delegate.key), await made(admin.key)];
  const grandchild = await made(child.key);
  for (let i = 2; i < 98; i++) expect((await make(i % 2 ? delegate.key : child.key)).status).toBe(200);
  const full = await make(child.key);
  expect([full.status, full.body.error.message]).toEqual([
    409,
    `100 root keys descend from ${admin.rootKeyId} already; delete some of them`,
  ]);
  expect((await make(ROOT_KEY)).status, 'those of a bootstrap root key have no bound').toBe(200);
  const statusOf = async ({ key }: { key: string }) =>
    (await fleet.admin('apis.listApis', {}, { rootKey: key })).status;
  const remove = (rootKeyId: string, rootKey = ROOT_KEY) =>
    fleet.admin('rootKeys.deleteRootKey', { rootKeyId }, { rootKey });
  expect((await remove(child.rootKeyId, delegate.key)).body).toMatchObject({
    ...{ deletedRootKeys: 50, propagation: { state: 'complete' } },
  });
  expect(await Promise.all([admin, delegate, child, grandchild, other].map(statusOf))).toEqual([
    ...[200, 200, 401, 401, 200],
  ]);
  expect((await make(delegate.key)).status).toBe(200);
  expect((await remove(child.rootKeyId)).status).toBe(404);
  const [event] = (await fleet.ok('audit.listEvents', { operation: 'rootKeys.deleteRootKey' })).events;
  expect(event).toMatchObject({
    ...{ by: { rootKeyId: delegate.rootKeyId }, on: { rootKeyId: child.rootKeyId } },
    ...{ before: { name: 'n', enabled: true }, after: { deletedRootKeys: 50 } },
  });
  const both = await Promise.all([remove(admin.rootKeyId), remove(admin.rootKeyId)]);
  expect(both.map(({ status }) => status).sort()).toEqual([200, 404]);
  expect(await fleet.client.hlen(rootKeyIndex)).toBe(before + 1);
  for (const { rootKeyId } of [admin, delegate, child, grandchild])
    expect(await fleet.client.hexists(rootKeyDescendants, rootKeyId)).toBe(0);
});

test('there are at most 1000 root keys', async () => {
  const present = await fleet.client.hlen(rootKeyIndex);
  const names = Array.from({ length: 999 - present }, (_, i) => [`root_filler${i}`, 'no hash of any key']);
  await fleet.client.hset(rootKeyIndex, Object.fromEntries(names));
  const create = () => fleet.admin('rootKeys.createRootKey', { name: 'n', permissions: ['api.*.read_key'] });
  expect((await create()).status).toBe(200);
  const { status, body } = await create();
  expect([status, body.error.code, body.error.message]).toEqual([
    409,
    'CONFLICT',
    'there are 1000 root keys already; delete some',
  ]);
  await fleet.client.hdel(rootKeyIndex, ...names.map(([name = '']) => name));
});

test('lists root keys by creation, with permissions', async () => {
  const made: string[] = [];
  for (const permissions of [['*'], ['api.*.read_key', 'root.*.read_fleet']])
    made.push((await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions })).rootKeyId);
  const { rootKeys } = await fleet.ok('rootKeys.listRootKeys');
  const ids = rootKeys.map(({ rootKeyId }: { rootKeyId: string }) => rootKeyId);
  expect(ids).toEqual(ids.toSorted());
  expect(ids.slice(-2)).toEqual(made);
  expect(rootKeys.at(-1)).toEqual({
    rootKeyId: made[1],
    name: 'n',
    permissions: ['api.*.read_key', 'root.*.read_fleet'],
    enabled: true,
    createdAt: expect.any(Number),
  });
  expect(rootKeys.at(-1).createdAt).toBeGreaterThan(Date.now() - 60_000);
});
