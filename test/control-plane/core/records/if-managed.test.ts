import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

/** Deletions by the set that declares a thing, creations that are repeated, and how far an API has come. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { WEBHOOK_NETWORKS: '127.0.0.0/8' } });
});
afterAll(() => fleet.stop());

const url = 'https://hooks.example.com/';
type Make = (managedBy: string | undefined) => Promise<object>;
const ROWS: readonly [kind: string, remove: string, change: string, make: Make][] = [
  [
    'a key',
    'keys.deleteKey',
    'keys.updateKey',
    async (managedBy) => {
      const { keyId } = await fleet.ok('keys.createKey', { apiId: 'mine', name: 'a', managedBy });
      return { keyId };
    },
  ],
  [
    'a role',
    'permissions.deleteRole',
    'permissions.updateRole',
    async (managedBy) => fleet.ok('permissions.createRole', { name: `role ${managedBy}`, managedBy }),
  ],
  [
    'a permission',
    'permissions.deletePermission',
    'permissions.updatePermission',
    async (managedBy) => fleet.ok('permissions.createPermission', { name: `p.${managedBy}`, managedBy }),
  ],
  [
    'an identity',
    'identities.deleteIdentity',
    'identities.updateIdentity',
    async (managedBy) => {
      const { identityId } = await fleet.ok('identities.createIdentity', {
        ...{ externalId: `of ${managedBy}`, managedBy },
      });
      return { identityId };
    },
  ],
  [
    'an API',
    'apis.deleteApi',
    'apis.updateApi',
    async (managedBy) => {
      const { apiId } = await fleet.ok('apis.createApi', {
        ...{ name: 'Of a set', apiId: `of-${managedBy}`, managedBy },
      });
      return { apiId };
    },
  ],
  [
    'a webhook',
    'webhooks.deleteEndpoint',
    'webhooks.updateEndpoint',
    async (managedBy) => {
      const { endpointId } = await fleet.ok('webhooks.createEndpoint', { url, name: 'a', managedBy });
      return { endpointId };
    },
  ],
];

test.each(ROWS)(
  '%s is deleted on the condition that its set still declares it',
  async (_kind, remove, change, make) => {
    for (const managedBy of ['others', undefined]) {
      const ref = await make(managedBy);
      const refused = await fleet.admin(remove, { ...ref, ifManagedBy: 'shop' });
      expect([refused.status, refused.body.error?.message]).toEqual([
        409,
        expect.stringContaining('ifManagedBy: shop does not declare it now'),
      ]);
      await fleet.ok(change, { ...ref, managedBy: 'shop' });
      // A change since it was read holds up no deletion.
      await fleet.ok(change, {
        ...ref,
        ...(change.includes('Role') ? { permissions: ['x'] } : { managedBy: 'shop' }),
      });
      await fleet.ok(remove, { ...ref, ifManagedBy: 'shop' });
    }
  },
);

test('of each name, a set has one webhook, also if its creation is repeated at once', async () => {
  const make = (managedBy: string | undefined, name = 'hook') =>
    fleet.admin('webhooks.createEndpoint', { url, name, ...(managedBy && { managedBy }) });
  const answers = await Promise.all([1, 2, 3, 4].map(() => make('shop')));
  expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409, 409, 409]);
  const endpointId = answers.find(({ status }) => status === 200)?.body.endpointId;
  for (const { status, body } of answers)
    if (status === 409) expect(body.error.message).toContain(`the endpoint ${endpointId} of this name`);
  expect((await make('shop', 'other')).status).toBe(200);
  expect((await make('others')).status).toBe(200);
  expect([(await make(undefined)).status, (await make(undefined)).status]).toEqual([200, 200]);
  await fleet.ok('webhooks.updateEndpoint', { endpointId, enabled: false });
});

test('how far an API has come is told of whatever was changed in it, and of its deletion', async () => {
  const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'headed', name: 'a' });
  expect(await fleet.ok('apis.getApiPropagation', { apiId: 'headed' })).toMatchObject({
    propagation: { state: 'complete', sequence: 0 },
  });
  expect(await fleet.verdict(key)).toBe('VALID');
  await fleet.ok('keys.deleteKey', { keyId, waitMs: 0 });
  const { propagation } = await fleet.ok('apis.getApiPropagation', { apiId: 'headed' });
  expect([propagation, (await fleet.verifyOnce(key)).body.code]).toEqual([
    expect.objectContaining({ state: 'complete', sequence: 1 }),
    'NOT_FOUND',
  ]);
  await fleet.ok('apis.deleteApi', { apiId: 'headed', waitMs: 0 });
  const { status, body } = await fleet.admin('apis.getApiPropagation', { apiId: 'headed' });
  expect([status, body.propagation?.state ?? body.error.code]).toEqual(
    status === 200 ? [200, 'complete'] : [404, 'NOT_FOUND'],
  );
});
