import { randomUUID } from 'node:crypto';
import { Unkey } from 'unkey-api-2';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hashSecret } from '../../shared/rules/key-format.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';

/** The client of today, unchanged: APIs, identities, permissions and roles. */
let fleet: Fleet;
let admin: Unkey;

const clientOf = (rootKey: string) =>
  new Unkey({
    ...{ rootKey, serverURL: fleet.controlPlanes[0]?.address ?? '', retryConfig: { strategy: 'none' } },
  });

beforeAll(async () => {
  fleet = await Fleet.start();
  admin = clientOf(ROOT_KEY);
});
afterAll(() => fleet.stop());

type Refusal = { readonly detail: string; readonly errors?: readonly { readonly location: string }[] };
const refusal = async (call: Promise<unknown>): Promise<Refusal & { status: number }> =>
  call.then(
    () => expect.unreachable('it was not refused'),
    (error: { statusCode: number; body: string }) => ({
      ...(JSON.parse(error.body) as { error: Refusal }).error,
      status: error.statusCode,
    }),
  );
const field = (location: string) => ({ status: 400, errors: [{ location }] });

/** Follows the cursors of a listing; the pages, each as long as its limit but the last. */
async function pagesOf<Item>(
  list: (cursor?: string) => Promise<{
    readonly result: {
      readonly data: readonly Item[];
      readonly pagination: { readonly cursor?: string | undefined; readonly hasMore: boolean };
    };
  }>,
): Promise<Item[][]> {
  const pages: Item[][] = [];
  for (let cursor: string | undefined, hasMore = true; hasMore; ) {
    const { result } = await list(cursor);
    pages.push([...result.data]);
    ({ cursor, hasMore } = result.pagination);
    expect(cursor !== undefined).toBe(hasMore);
    expect(pages.length).toBeLessThan(50);
  }
  return pages;
}
/** The subject of the last event of the audit log. */
const lastSubject = async (query: object = {}) =>
  (await fleet.ok('audit.listEvents', { limit: '1', ...query })).events[0].on;

test('APIs are created, shown and deleted', async () => {
  const { apiId } = (await admin.apis.createApi({ name: 'Shop' })).data;
  expect((await admin.apis.getApi({ apiId })).data).toEqual({ id: apiId, name: 'Shop' });
  expect((await admin.apis.deleteApi({ apiId })).data).toEqual({});
  expect(await lastSubject()).toEqual({ apiId });
  expect(await refusal(admin.apis.getApi({ apiId }))).toMatchObject({ status: 404 });
  expect(await refusal(admin.apis.deleteApi({ apiId }))).toMatchObject({ status: 404 });
  expect(await refusal(admin.apis.createApi({ name: '' }))).toMatchObject(field('body.name'));
  const unnamed = randomUUID();
  await admin.keys.createKey({ apiId: unnamed }); // which creates it
  expect((await admin.apis.getApi({ apiId: unnamed })).data).toEqual({ id: unnamed, name: unnamed });
});

describe('identities', () => {
  const limit = { name: 'requests', limit: 100, duration: 60_000 };

  test('are created, changed and deleted by either id', async () => {
    const externalId = `Ada ${randomUUID()}`;
    const fields = { externalId, meta: { plan: 'pro' } };
    const { identityId } = (await admin.identities.createIdentity({ ...fields, ratelimits: [limit] })).data;
    const shown = {
      ...{ id: identityId, ...fields },
      ratelimits: [{ id: `${identityId}.requests`, ...limit, autoApply: false }],
    };
    for (const identity of [identityId, externalId])
      expect((await admin.identities.getIdentity({ identity })).data).toEqual(shown);
    const meta = { plan: 'free' };
    for (const identity of [identityId, externalId])
      expect((await admin.identities.updateIdentity({ identity, meta })).data).toEqual({ ...shown, meta });
    expect(await lastSubject()).toEqual({ identityId });
    const cleared = await admin.identities.updateIdentity({ identity: externalId, meta: {}, ratelimits: [] });
    expect(cleared.data).toEqual({ id: identityId, externalId });
    await admin.identities.deleteIdentity({ identity: externalId });
    expect(await lastSubject()).toEqual({ identityId });
    for (const identity of [identityId, externalId]) {
      expect(await refusal(admin.identities.getIdentity({ identity }))).toMatchObject({ status: 404 });
      expect(await refusal(admin.identities.updateIdentity({ identity, meta }))).toMatchObject({
        status: 404,
      });
      expect(await refusal(admin.identities.deleteIdentity({ identity }))).toMatchObject({ status: 404 });
    }
    expect(await lastSubject()).toEqual({ identityId });
  });

  test('are found if the external id looks like an id', async () => {
    const externalId = `identity_${randomUUID()}`;
    const { identityId } = (await admin.identities.createIdentity({ externalId })).data;
    expect((await admin.identities.getIdentity({ identity: externalId })).data).toEqual({
      ...{ id: identityId, externalId },
    });
    // An id goes before the external id of another.
    await admin.identities.createIdentity({ externalId: identityId });
    expect((await admin.identities.getIdentity({ identity: identityId })).data.externalId).toBe(externalId);
  });

  test('are refused with the field and its rule', async () => {
    const externalId = randomUUID();
    const createIdentity = (more: object) => admin.identities.createIdentity({ externalId, ...more });
    const updateIdentity = (more: object) =>
      admin.identities.updateIdentity({ identity: externalId, ...more });
    await createIdentity({});
    expect(await refusal(createIdentity({}))).toMatchObject({ status: 409, title: 'Conflict' });
    for (const [call, location] of [
      [() => createIdentity({ externalId: '' }), 'body.externalId'],
      [() => updateIdentity({}), 'body'],
      [() => updateIdentity({ ratelimits: [{ ...limit, limit: 0 }] }), 'body.ratelimits.0.limit'],
      [() => updateIdentity({ ratelimits: [{ ...limit, name: 'default' }] }), 'body.ratelimits'],
      [() => createIdentity({ ratelimits: [limit, limit] }), 'body.ratelimits'],
      [() => admin.identities.getIdentity({ identity: '' }), 'body.identity'],
      [() => admin.identities.listIdentities({ limit: 101 }), 'body.limit'],
      [() => admin.identities.listIdentities({ cursor: 'x' }), 'body.cursor'],
    ] as const)
      expect(await refusal(call())).toMatchObject(field(location));
    const stranger = clientOf('none');
    const byStranger = stranger.identities.getIdentity({ identity: externalId });
    expect(await refusal(byStranger)).toMatchObject({ status: 401 });
    const reader = await fleet.ok('rootKeys.createRootKey', {
      ...{ name: 'r', permissions: ['root.*.update_identity'] },
    });
    const updater = clientOf(reader.key);
    const byUpdater = updater.identities.getIdentity({ identity: externalId });
    expect(await refusal(byUpdater)).toMatchObject({ status: 403 });
    const { data } = await updater.identities.updateIdentity({ identity: externalId, meta: { a: 1 } });
    expect(data).toEqual({ id: expect.stringMatching(/^identity_/), externalId });
  });

  test('are listed in pages, searched by a part', async () => {
    const run = randomUUID().slice(0, 8);
    const all = [...Array(12).keys()].map((i) => `${i % 2 ? 'Odd' : 'even'}-${run}-${i}`);
    for (const externalId of all) await admin.identities.createIdentity({ externalId });
    const namesOf = (pages: readonly { externalId: string }[][]) =>
      pages.flat().map((each) => each.externalId);
    const list = (search: string | undefined, limit: number) =>
      pagesOf((cursor) =>
        admin.identities.listIdentities({
          ...{ limit, ...(cursor ? { cursor } : {}), ...(search === undefined ? {} : { search }) },
        }),
      );
    const odd = await list(`DD-${run.toUpperCase()}`, 4);
    expect(odd.map((page) => page.length)).toEqual([4, 2]);
    expect(namesOf(odd)).toEqual(all.filter((_, i) => i % 2));
    const everything = await list(undefined, 5);
    expect(everything.length).toBeGreaterThan(2);
    expect(namesOf(everything)).toEqual(expect.arrayContaining(all));
    expect(new Set(namesOf(everything)).size).toBe(everything.flat().length);
    expect(namesOf(await list('nobody has this', 5))).toEqual([]);
    expect(namesOf(await list('%', 5))).toEqual([]);
    const [one] = (await admin.identities.listIdentities({ search: `odd-${run}-1` })).result.data;
    const byId = await admin.identities.listIdentities({ search: one?.id.toUpperCase() });
    expect(byId.result.data).toEqual([one]);
  });

  test('are searched a thousand a call', async () => {
    const run = randomUUID();
    for (let i = 0; i < 1050; i += 75)
      await Promise.all(
        [...Array(75).keys()].map((j) => admin.identities.createIdentity({ externalId: `many-${i + j}` })),
      );
    await admin.identities.createIdentity({ externalId: run });
    const pages = await pagesOf((cursor) =>
      admin.identities.listIdentities({ search: run, ...(cursor ? { cursor } : {}) }),
    );
    expect(pages.map((page) => page.map((each) => each.externalId))).toEqual([[], [run]]);
  });
});

describe('permissions and roles', () => {
  test('creates, shows, lists and deletes permissions', async () => {
    const slug = `files.${randomUUID()}`;
    const permission = { slug, name: 'Read Files', description: 'Reads what is there' };
    const { permissionId } = (await admin.permissions.createPermission(permission)).data;
    const shown = { id: permissionId, ...permission };
    for (const id of [permissionId, slug])
      expect((await admin.permissions.getPermission({ permission: id })).data).toEqual(shown);
    expect(await refusal(admin.permissions.createPermission(permission))).toMatchObject({ status: 409 });
    const more = [...Array(5).keys()].map((i) => `${slug}.${i}`);
    for (const each of more) await admin.permissions.createPermission({ slug: each, name: `Extra ${each}` });
    const pages = await pagesOf((cursor) =>
      admin.permissions.listPermissions({ limit: 2, ...(cursor ? { cursor } : {}), search: 'eXtra FILES' }),
    );
    expect(pages.map((page) => page.map((each) => each.slug))).toEqual([
      ...[more.slice(0, 2), more.slice(2, 4), more.slice(4)],
    ]);
    const { data } = (await admin.permissions.listPermissions({ search: 'WHAT IS THERE' })).result;
    expect(data).toEqual([shown]);
    expect((await admin.permissions.deletePermission({ permission: slug })).data).toEqual({});
    expect(await lastSubject()).toEqual({ permissionId: slug });
    const getPermission = (permission: string) => admin.permissions.getPermission({ permission });
    const deletePermission = (permission: string) => admin.permissions.deletePermission({ permission });
    expect(await refusal(getPermission(slug))).toMatchObject({ status: 404 });
    expect(await refusal(deletePermission(slug))).toMatchObject({ status: 404 });
    expect(await refusal(getPermission('a b'))).toMatchObject(field('body.permission'));
    expect(await refusal(admin.permissions.createPermission({ name: 'x', slug: 'a b' }))).toMatchObject(
      field('body.slug'),
    );
  });

  test('creates, changes, lists and deletes roles', async () => {
    const run = randomUUID().slice(0, 8);
    const [slug, unknown] = [`articles.write.${run}`, `articles.read.${run}`];
    await admin.permissions.createPermission({ slug, name: 'Write Articles', description: 'all' });
    const permissions = [
      { id: unknown, slug: unknown, name: unknown },
      { id: slug, slug, name: 'Write Articles', description: 'all' },
    ];
    const name = `Editor of ${run}`;
    const given = { name, description: 'Writes', permissions: [slug, unknown] };
    const { roleId } = (await admin.permissions.createRole(given)).data;
    const shown = { id: roleId, name, description: 'Writes', permissions };
    for (const role of [roleId, name])
      expect((await admin.permissions.getRole({ role })).data).toEqual(shown);
    expect(await refusal(admin.permissions.createRole(given))).toMatchObject({ status: 409 });
    const set = (await admin.permissions.setRolePermissions({ roleId: name, permissions: [slug] })).data;
    expect(set).toEqual([permissions[1]]);
    expect(await lastSubject()).toEqual({ roleId });
    expect((await admin.permissions.getRole({ role: name })).data.permissions).toEqual(set);
    for (let i = 0; i < 4; i++) await admin.permissions.createRole({ name: `Viewer-${run}-${i}` });
    const pages = await pagesOf((cursor) =>
      admin.permissions.listRoles({ limit: 3, ...(cursor ? { cursor } : {}), search: run.toUpperCase() }),
    );
    expect(pages.map((page) => page.map((role) => role.name))).toEqual([
      [name, `Viewer-${run}-0`, `Viewer-${run}-1`],
      [`Viewer-${run}-2`, `Viewer-${run}-3`],
    ]);
    expect(pages[0]?.[0]).toMatchObject({ permissions: set });
    expect((await admin.permissions.setRolePermissions({ roleId, permissions: [] })).data).toEqual([]);
    const refused = clientOf(
      (await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions: ['root.*.read_role'] })).key,
    );
    expect(await refusal(refused.permissions.deleteRole({ role: roleId }))).toMatchObject({ status: 403 });
    expect(await lastSubject({ refused: 'true' })).toEqual({ roleId });
    await admin.permissions.deleteRole({ role: name });
    expect(await lastSubject()).toEqual({ roleId });
    for (const role of [roleId, name]) {
      expect(await refusal(admin.permissions.getRole({ role }))).toMatchObject({ status: 404 });
      expect(await refusal(admin.permissions.deleteRole({ role }))).toMatchObject({ status: 404 });
      const change = admin.permissions.setRolePermissions({ roleId: role, permissions: [] });
      expect(await refusal(change)).toMatchObject({ status: 404 });
    }
    expect(await refusal(admin.permissions.getRole({ role: ' a' }))).toMatchObject(field('body.role'));
    expect(await refusal(admin.permissions.listRoles({ cursor: 'x' }))).toMatchObject(field('body.cursor'));
  });

  test('no role is what has the id of something else', async () => {
    const { identityId } = (await admin.identities.createIdentity({ externalId: randomUUID() })).data;
    expect(await refusal(admin.permissions.deleteRole({ role: identityId }))).toMatchObject({ status: 404 });
    expect((await admin.identities.getIdentity({ identity: identityId })).data.id).toBe(identityId);
  });
});

test('refuses analytics of what is not counted', async () => {
  expect(await refusal(admin.analytics.getRatelimits({ query: 'SELECT 1' }))).toMatchObject({
    ...{ status: 404, detail: expect.stringContaining('analytics.getVerifications') },
  });
});

test('refuses a secret as an id, writing none down', async () => {
  const secrets = [
    (await admin.keys.createKey({ apiId: 'shop' })).data.key,
    `elsewhere-${randomUUID()}`, // of another format, imported
  ];
  await fleet.ok('keys.importKeys', { apiId: 'moved', keys: [{ sha256: hashSecret(secrets[1] ?? '') }] });
  for (const secret of secrets) {
    for (const [call, location] of [
      [() => admin.identities.getIdentity({ identity: secret }), 'body.identity'],
      [() => admin.identities.deleteIdentity({ identity: secret }), 'body.identity'],
      [() => admin.identities.createIdentity({ externalId: secret }), 'body.externalId'],
      [() => admin.permissions.getRole({ role: secret }), 'body.role'],
      [() => admin.permissions.deleteRole({ role: secret }), 'body.role'],
      [() => admin.permissions.deletePermission({ permission: secret }), 'body.permission'],
      [() => admin.permissions.createPermission({ name: 'n', slug: secret }), 'body.slug'],
    ] as const)
      expect(await refusal(call())).toMatchObject({
        ...field(location),
        detail: expect.stringContaining('must not be a key'),
      });
    const events = JSON.stringify(await fleet.ok('audit.listEvents', { refused: 'true' }));
    expect(events).toContain('identities.deleteIdentity');
    expect(events).not.toContain(secret);
    expect(fleet.logged.join('\n')).not.toContain(secret);
  }
});
