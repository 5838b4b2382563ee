import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { apiKeys, SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';

/** A kind of things that a set of files can declare. */
interface Kind {
  /** Creates one with these fields, and returns how calls refer to it. */
  readonly make: (fields: object) => Promise<object>;
  readonly read: string;
  readonly change: string;
  readonly list: string;
  /** Of the listing. */
  readonly query?: object;
  /** The field with the list, if the answer is not the list. */
  readonly items?: string;
  /** A change as by hand. */
  readonly byHand: object;
  /** The log with its changes. */
  readonly log?: string;
}

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'Shop' });
});
afterAll(() => fleet.stop());

const creating =
  (operation: string, fields: object, id: string) =>
  async (more: object): Promise<object> => ({
    [id]: (await fleet.ok(operation, { ...fields, ...more }))[id],
  });
const KINDS: Readonly<Record<string, Kind>> = {
  'a key': {
    make: creating('keys.createKey', { apiId: 'shop' }, 'keyId'),
    ...{ read: 'keys.getKey', change: 'keys.updateKey', list: 'apis.listKeys', items: 'keys' },
    ...{ query: { apiId: 'shop' }, byHand: { name: 'other' }, log: 'shop' },
  },
  'an API': {
    make: creating('apis.createApi', { apiId: 'other', name: 'Other' }, 'apiId'),
    ...{ read: 'apis.getApi', change: 'apis.updateApi', list: 'apis.listApis', items: 'apis' },
    byHand: { name: 'another' },
  },
  'a role': {
    make: creating('permissions.createRole', { name: 'pro' }, 'roleId'),
    ...{ read: 'permissions.getRole', change: 'permissions.updateRole', list: 'permissions.listRoles' },
    ...{ byHand: { permissions: ['files.read'] }, log: SHARED_LOG },
  },
  'a permission': {
    make: creating('permissions.createPermission', { name: 'files.read' }, 'permissionId'),
    ...{ read: 'permissions.getPermission', change: 'permissions.updatePermission' },
    ...{ list: 'permissions.listPermissions', byHand: { description: 'Reads' }, log: SHARED_LOG },
  },
  'an identity': {
    make: creating('identities.createIdentity', { externalId: 'acme' }, 'identityId'),
    ...{ read: 'identities.getIdentity', change: 'identities.updateIdentity' },
    ...{
      list: 'identities.listIdentities',
      items: 'identities',
      byHand: { meta: { n: 1 } },
      log: SHARED_LOG,
    },
  },
  'a webhook': {
    make: creating('webhooks.createEndpoint', { url: 'https://hooks.example.com/' }, 'endpointId'),
    ...{ read: 'webhooks.getEndpoint', change: 'webhooks.updateEndpoint' },
    ...{ list: 'webhooks.listEndpoints', items: 'endpoints', byHand: { name: 'Hooks' } },
  },
};

describe.each(Object.entries(KINDS))('managedBy of %s', (_name, kind) => {
  const { make, read, change, list, items, query, byHand, log } = kind;
  const listed = async (managedBy: string) => {
    const answer = await fleet.ok(list, { ...query, managedBy });
    return items ? answer[items] : answer;
  };

  test('is told, filters, and tells of other changes', async () => {
    const set = `of ${read}`;
    const it = await make({ managedBy: set });
    expect(await fleet.ok(read, it)).toMatchObject({ managedBy: set });
    expect(await fleet.ok(read, it)).not.toHaveProperty('driftedAt');
    expect(await listed(set)).toMatchObject([{ managedBy: set }]);
    expect(await listed(`${set}, another`)).toEqual([]);

    await fleet.ok(change, { ...it, ...byHand });
    const { driftedAt } = await fleet.ok(read, it);
    expect(driftedAt).toBeTypeOf('number');
    await fleet.ok(change, { ...it, ...byHand });
    expect(await fleet.ok(read, it)).toMatchObject({ driftedAt, managedBy: set });
    await fleet.ok(change, { ...it, ...byHand, managedBy: set });
    expect(await fleet.ok(read, it)).not.toHaveProperty('driftedAt');

    await fleet.ok(change, { ...it, ...byHand });
    await fleet.ok(change, { ...it, managedBy: null });
    const after = await fleet.ok(read, it);
    expect(after).not.toHaveProperty('managedBy');
    expect(after).not.toHaveProperty('driftedAt');
    await fleet.ok(change, { ...it, ...byHand });
    expect(await fleet.ok(read, it)).not.toHaveProperty('driftedAt');
    const [last, before] = (await fleet.ok('audit.listEvents', { operation: change })).events;
    expect(last.after).not.toHaveProperty('managedBy');
    expect(before).toMatchObject({ before: { managedBy: set }, after: { managedBy: null } });
  });

  test('has at most 128 characters', async () => {
    const it = kind.list === 'apis.listApis' ? { apiId: 'other' } : {};
    const { status, body } = await fleet.admin(change, { ...it, managedBy: 'm'.repeat(129) });
    expect([status, body.error.message]).toMatchObject([400, expect.stringContaining('managedBy')]);
  });

  if (log)
    test('is in no entry of the log', async () => {
      const entries = await fleet.client.xrange(apiKeys(log).log, '-', '+');
      expect(entries.length).toBeGreaterThan(0);
      expect(JSON.stringify(entries)).not.toContain(`of ${read}`);
    });
});

test('credits of a managed key do not count as a change', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 5, managedBy: 'set' });
  await fleet.ok('keys.updateRemaining', { keyId, op: 'increment', value: 5 });
  expect(await fleet.ok('keys.getKey', { keyId })).not.toHaveProperty('driftedAt');
  await fleet.ok('keys.updateKey', { keyId, remaining: 7, name: 'Ada' });
  expect(await fleet.ok('keys.getKey', { keyId })).toHaveProperty('driftedAt');
});

test('an import declares its keys, and keeps them', async () => {
  const keys = [{ sha256: 'ab'.repeat(32), managedBy: 'imported' }];
  const [first] = (await fleet.ok('keys.importKeys', { apiId: 'shop', keys })).results;
  const [again] = (await fleet.ok('keys.importKeys', { apiId: 'shop', keys })).results;
  expect([first.result, again]).toEqual(['created', { result: 'exists', keyId: first.keyId }]);
  expect(await fleet.ok('keys.getKey', { keyId: first.keyId })).toMatchObject({ managedBy: 'imported' });
});

describe('managedByPrefix', () => {
  const API = 'declared';
  /** All keys whose `managedBy` begins with a prefix, from pages of two. */
  const listed = async (prefix: string, query: object = { apiId: API }, operation = 'apis.listKeys') => {
    const all: string[] = [];
    let cursor: string | undefined;
    do {
      const input = { ...query, managedByPrefix: prefix, limit: '2', ...(cursor && { cursor }) };
      const page = await fleet.ok(operation, input);
      const items = (page.keys ?? page.identities) as { managedBy: string }[];
      all.push(...items.map(({ managedBy }) => managedBy));
      cursor = page.cursor;
    } while (cursor);
    return all;
  };
  const create = (managedBy?: string) =>
    fleet.ok('keys.createKey', { apiId: API, ...(managedBy && { managedBy }) });
  beforeAll(() => fleet.ok('apis.createApi', { apiId: API, name: 'Declared' }));

  test('lists by it all that creations, changes, rotations and deletions leave', async () => {
    const ids: string[] = [];
    for (const name of ['a/5', 'a/1', 'b/1', 'a/3', 'a/2', 'a', undefined, 'a\u0000/4', 'ä/1'])
      ids.push((await create(name)).keyId);
    expect(await listed('a/')).toEqual(['a/1', 'a/2', 'a/3', 'a/5']);
    expect((await listed('a')).sort()).toEqual(['a', 'a\u0000/4', 'a/1', 'a/2', 'a/3', 'a/5']);
    expect(await listed('ä')).toEqual(['ä/1']);
    const [five, one, b, three, two, , none] = ids;
    await fleet.ok('keys.updateKey', { keyId: five, managedBy: 'a/0' });
    await fleet.ok('keys.updateKey', { keyId: one, managedBy: null });
    await fleet.ok('keys.updateKey', { keyId: b, name: 'only this' });
    await fleet.ok('keys.updateKey', { keyId: none, managedBy: 'a/9' });
    await fleet.ok('keys.deleteKey', { keyId: two });
    const again = await fleet.ok('keys.rerollKey', { keyId: three, expiration: 0 });
    expect(await listed('a/')).toEqual(['a/0', 'a/3', 'a/3', 'a/9']);
    await fleet.ok('keys.deleteKey', { keyId: again.keyId });
    expect(await listed('a/')).toEqual(['a/0', 'a/3', 'a/9']);
    expect(await listed('b/')).toEqual(['b/1']);
  });

  test('goes with other conditions, and with no order', async () => {
    const { keyId } = await create('c/1');
    await create('c/2');
    await fleet.ok('keys.updateKey', { keyId, enabled: false, externalId: 'acme' });
    expect(await listed('c/', { apiId: API, enabled: 'false' })).toEqual(['c/1']);
    expect(await listed('c/', { apiId: API, state: 'disabled' })).toEqual(['c/1']);
    expect(await listed('c/', { apiId: API, externalId: 'acme' })).toEqual(['c/1']);
    const { status, body } = await fleet.admin('apis.listKeys', {
      ...{ apiId: API, managedByPrefix: 'c/', sort: 'name' },
    });
    expect([status, body.error.message]).toEqual([
      400,
      expect.stringContaining('sort: with managedByPrefix'),
    ]);
  });

  test('finds records from before there was an index', async () => {
    const { declared, head } = { declared: `kf:{old}:by`, head: apiKeys('old').head };
    await fleet.ok('apis.createApi', { apiId: 'old', name: 'Old' });
    const keys = Array.from({ length: 1100 }, (_, i) => ({
      ...{ sha256: i.toString(16).padStart(64, '0'), managedBy: `set/${String(i).padStart(4, '0')}` },
    }));
    let keyId = '';
    for (let i = 0; i < keys.length; i += 100) {
      const { results } = await fleet.ok('keys.importKeys', { apiId: 'old', keys: keys.slice(i, i + 100) });
      keyId = results.at(-1).keyId;
    }
    await fleet.client.del(declared);
    await fleet.client.hdel(head, 'by:idx');
    await fleet.ok('keys.updateKey', { keyId, managedBy: 'set/new' });
    const all = await listed('set/', { apiId: 'old' });
    expect(all).toEqual([...keys.slice(0, -1).map(({ managedBy }) => managedBy), 'set/new']);
  });

  test('passes over what is in the index alone', async () => {
    await create('d/1');
    await fleet.client.zadd(`kf:{${API}}:by`, 0, 'd/0\u0000key_gone', 0, 'd/2\u0000key_gone');
    expect(await listed('d/')).toEqual(['d/1']);
  });

  test('lists identities', async () => {
    for (const n of [3, 1, 2])
      await fleet.ok('identities.createIdentity', { externalId: `e${n}`, managedBy: `e/${n}` });
    // A role of the same log.
    await fleet.ok('permissions.createRole', { name: 'e', managedBy: 'e/4' });
    expect(await listed('e/', {}, 'identities.listIdentities')).toEqual(['e/1', 'e/2', 'e/3']);
  });
});
