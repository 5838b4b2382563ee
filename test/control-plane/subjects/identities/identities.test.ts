import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { generateKey, hashSecret } from '#shared/rules/key-format.ts';
import { Fleet } from '../../../harness/fleet.ts';

/** Identities: customers with keys in several APIs; two verifiers follow. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2 });
});
afterAll(() => fleet.stop());

let made = 0;
const newOwner = () => `customer-${++made}`;
const newKey = (fields: object = {}) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const newIdentity = async (externalId: string, fields: object = {}): Promise<string> =>
  (await fleet.ok('identities.createIdentity', { externalId, ...fields })).identityId;
const setEnabled = (externalId: string, enabled: boolean) =>
  fleet.ok('identities.updateIdentity', { externalId, enabled });
/** What both verifiers answer, asked again while they cannot decide. */
const verdicts = (key: string) =>
  Promise.all([0, 1].map(async (at) => (await fleet.verify(key, { at })).body));
const codes = async (key: string) => (await verdicts(key)).map(({ code }) => code);
/** What is answered at once; undefined where a verifier has no verdict at this instant. */
const told = (key: string) =>
  Promise.all([0, 1].map(async (at) => (await fleet.verifyOnce(key, { at })).body.code));

describe('one call', () => {
  test('one call stops a customer in all APIs, and one call brings back all keys but those disabled on their own', async () => {
    const externalId = newOwner();
    await newIdentity(externalId, { meta: { plan: 'pro' } });
    const shop = await newKey({ externalId });
    const books = await newKey({ externalId, apiId: 'books', roles: [], permissions: ['read'] });
    const off = await newKey({ ownerId: externalId, enabled: false });
    const other = await newKey({ externalId: newOwner() });
    for (const { key } of [shop, books]) expect(await codes(key)).toEqual(['VALID', 'VALID']);
    for (const body of await verdicts(shop.key))
      expect(body.identity).toEqual({ id: expect.any(String), externalId, meta: { plan: 'pro' } });

    const { propagation, enabled } = await setEnabled(externalId, false);
    expect([propagation.state, enabled]).toEqual(['complete', false]);
    // A slow machine may have no verdict at this instant, but never an older one.
    for (const { key } of [shop, books])
      for (const code of await told(key)) expect([undefined, 'DISABLED']).toContain(code);
    for (const { key } of [shop, books])
      for (const body of await verdicts(key))
        expect(body).toMatchObject({ valid: false, code: 'DISABLED', enabled: false });
    expect(await codes(other.key)).toEqual(['VALID', 'VALID']);
    // Keys keep what they have themselves.
    expect((await fleet.ok('keys.getKey', { keyId: shop.keyId })).enabled).toBe(true);

    await setEnabled(externalId, true);
    for (const { key } of [shop, books]) expect(await codes(key)).toEqual(['VALID', 'VALID']);
    expect(await codes(off.key)).toEqual(['DISABLED', 'DISABLED']);
  });

  test('changes what answers tell of a customer', async () => {
    const externalId = newOwner();
    const identityId = await newIdentity(externalId, { meta: { plan: 'free' } });
    const { key } = await newKey({ externalId });
    for (const body of await verdicts(key)) expect(body.identity.meta).toEqual({ plan: 'free' });
    const name = 'Žofie ✓ 山 😀 é';
    await fleet.ok('identities.updateIdentity', { identityId, meta: { name } });
    for (const body of await verdicts(key)) expect(body.identity.meta).toEqual({ name });
    const answer = await fleet.ok('identities.updateIdentity', { identityId, meta: { plan: 'pro' } });
    expect(answer).toMatchObject({ id: identityId, externalId, enabled: true, meta: { plan: 'pro' } });
    for (const body of await verdicts(key))
      expect(body.identity).toEqual({ id: identityId, externalId, meta: { plan: 'pro' } });
  });
});

describe('keys are the customer’s', () => {
  test('includes keys made before the identity', async () => {
    const externalId = newOwner();
    const keys = await Promise.all(['shop', 'books', 'games'].map((apiId) => newKey({ apiId, externalId })));
    for (const { key } of keys) expect(await codes(key)).toEqual(['VALID', 'VALID']);
    const { identityId, propagation } = await fleet.ok('identities.createIdentity', {
      ...{ externalId, enabled: false },
    });
    expect(propagation.state).toBe('complete');
    for (const { key } of keys)
      for (const code of await told(key)) expect([undefined, 'DISABLED']).toContain(code);
    for (const { key } of keys) expect(await codes(key)).toEqual(['DISABLED', 'DISABLED']);
    const [first] = keys;
    expect((await fleet.ok('keys.getKey', { keyId: first?.keyId })).identity).toEqual({
      ...{ id: identityId, externalId, enabled: false },
    });
  });

  test('includes given, imported and rerolled keys', async () => {
    const [externalId, another] = [newOwner(), newOwner()];
    await newIdentity(externalId, { enabled: false });
    await newIdentity(another);
    const given = await newKey();
    const moved = await newKey({ externalId });
    expect(await codes(given.key)).toEqual(['VALID', 'VALID']);
    await fleet.ok('keys.updateKey', { keyId: given.keyId, externalId });
    expect(await codes(given.key)).toEqual(['DISABLED', 'DISABLED']);
    expect(await codes(moved.key)).toEqual(['DISABLED', 'DISABLED']);
    await fleet.ok('keys.updateKey', { keyId: moved.keyId, externalId: another });
    expect(await codes(moved.key)).toEqual(['VALID', 'VALID']);
    await fleet.ok('keys.updateKey', { keyId: given.keyId, externalId: null });
    for (const body of await verdicts(given.key)) {
      expect(body.code).toBe('VALID');
      expect(body).not.toHaveProperty('identity');
    }

    const secret = generateKey(16, 'shop');
    const [{ keyId }] = (
      await fleet.ok('keys.importKeys', {
        apiId: 'shop',
        keys: [{ sha256: hashSecret(secret), foreign: false, externalId }],
      })
    ).results;
    expect(await codes(secret)).toEqual(['DISABLED', 'DISABLED']);
    const rerolled = await fleet.ok('keys.rerollKey', { keyId, expiration: 0 });
    expect(await codes(rerolled.key)).toEqual(['DISABLED', 'DISABLED']);
  });

  test('holds for keys made and given all at once', async () => {
    for (let round = 0; round < 10; round++) {
      const externalId = newOwner();
      const moved = await newKey();
      const [created, updated] = await Promise.all([
        newKey({ externalId }),
        fleet.ok('keys.updateKey', { keyId: moved.keyId, externalId }),
        newIdentity(externalId, { enabled: false }),
      ]);
      expect(updated.propagation.state).toBe('complete');
      for (const { key } of [created, moved])
        for (const code of await codes(key)) expect(code).toBe('DISABLED');
    }
  });

  test('holds for the first key of a new API', async () => {
    const rounds = Array.from({ length: 300 }, async (_, i) => {
      const externalId = newOwner();
      const calls = [
        () => newKey({ apiId: `new-${i}`, externalId }),
        () => newIdentity(externalId, { enabled: false }),
      ];
      if (i % 2 === 1) calls.reverse();
      const answers = await Promise.all(calls.map((call) => call()));
      return codes(answers.find(({ key }) => key !== undefined)?.key);
    });
    for (const each of await Promise.all(rounds)) expect(each).toEqual(['DISABLED', 'DISABLED']);
  });

  test('holds once both calls answer, in any order', async () => {
    for (let round = 0; round < 40; round++) {
      const externalId = newOwner();
      const made = [newKey({ externalId }), newKey({ externalId, apiId: 'books' })];
      const stop =
        round % 2 === 0
          ? newIdentity(externalId, { enabled: false })
          : newIdentity(externalId).then(() => setEnabled(externalId, false));
      const [keys] = await Promise.all([Promise.all(made), stop]);
      keys.push(await newKey({ externalId }));
      for (const { key } of keys) for (const code of await told(key)) expect(code).not.toBe('VALID');
      for (const { key } of keys) expect(await codes(key)).toEqual(['DISABLED', 'DISABLED']);
    }
  });

  test('holds while others come and go for the owner', async () => {
    const externalId = newOwner();
    const { keyId, key } = await newKey({ externalId });
    const first = await newIdentity(externalId);
    const answers = await Promise.all([
      fleet.admin('identities.deleteIdentity', { identityId: first }),
      ...Array.from({ length: 4 }, () => fleet.admin('identities.createIdentity', { externalId })),
      fleet.admin('keys.updateKey', { keyId, externalId }),
    ]);
    for (const { status } of answers) expect([200, 409]).toContain(status);
    const now = await fleet.admin('identities.getIdentity', { externalId });
    if (now.status === 404) await newIdentity(externalId);
    await setEnabled(externalId, false);
    expect(await codes(key)).toEqual(['DISABLED', 'DISABLED']);
  });
});

describe('an identity that holds in some APIs', () => {
  test('an identity with apiIds has no effect in other APIs: no stop, no data, no shared limit', async () => {
    const externalId = newOwner();
    const limit = [{ name: 'tokens', limit: 1, duration: 86_400_000 }];
    await Promise.all([newKey(), newKey({ apiId: 'games' })]);
    const unknown = await fleet.admin('identities.createIdentity', { externalId, apiIds: ['shop', 'no'] });
    expect([unknown.status, unknown.body.error.message]).toEqual([400, 'apiIds.1: there is no such API']);
    const nobody = { externalId: 'nobody', apiIds: ['no-such-api'] };
    expect((await fleet.admin('identities.updateIdentity', nobody)).status).toBe(404);
    await newIdentity(externalId, { apiIds: ['shop', 'games'], meta: { plan: 'pro' }, ratelimits: limit });
    const mine = await newKey({ externalId });
    const theirs = await newKey({ externalId, apiId: 'books' });
    const asked = { ratelimits: [{ name: 'tokens' }] };
    expect(await fleet.verdict(mine.key, asked)).toBe('VALID');
    expect((await fleet.verify(theirs.key, asked)).body.error.message).toContain(
      'neither the key nor its identity or roles have a limit named tokens',
    );
    for (const body of await verdicts(mine.key)) expect(body.identity.meta).toEqual({ plan: 'pro' });
    for (const body of await verdicts(theirs.key)) expect(body).not.toHaveProperty('identity');
    expect((await fleet.ok('keys.getKey', { keyId: mine.keyId })).identity.externalId).toBe(externalId);
    expect(await fleet.ok('keys.getKey', { keyId: theirs.keyId })).not.toHaveProperty('identity');
    const { keys } = await fleet.ok('apis.listKeys', { apiId: 'books', externalId });
    expect(keys.map(({ identity }: { identity?: object }) => identity)).toEqual([undefined]);

    await setEnabled(externalId, false);
    expect(await codes(mine.key)).toEqual(['DISABLED', 'DISABLED']);
    expect(await codes(theirs.key)).toEqual(['VALID', 'VALID']);
    expect((await fleet.ok('identities.getIdentity', { externalId })).apiIds).toEqual(['games', 'shop']);
    await fleet.ok('identities.updateIdentity', { externalId, apiIds: ['books'] });
    expect(await codes(mine.key)).toEqual(['VALID', 'VALID']);
    expect(await codes(theirs.key)).toEqual(['DISABLED', 'DISABLED']);
    await fleet.ok('identities.updateIdentity', { externalId, apiIds: null });
    for (const { key } of [mine, theirs]) expect(await codes(key)).toEqual(['DISABLED', 'DISABLED']);
    expect(await fleet.ok('identities.getIdentity', { externalId })).not.toHaveProperty('apiIds');
  });

  test('may hold in more APIs than the log can state', async () => {
    const externalId = newOwner();
    const apiIds = ['shop', ...Array.from({ length: 99 }, (_, i) => `${'x'.repeat(60)}${i}`)];
    await Promise.all(apiIds.slice(1).map((apiId) => fleet.ok('apis.createApi', { name: apiId, apiId })));
    const { key } = await newKey({ externalId });
    expect(await codes(key)).toEqual(['VALID', 'VALID']);
    await newIdentity(externalId, { apiIds, enabled: false });
    for (const code of await told(key)) expect(code).not.toBe('VALID');
    expect(await codes(key)).toEqual(['DISABLED', 'DISABLED']);
  });
});

describe('an identity', () => {
  test('is changed and shown only by permission', async () => {
    const externalId = newOwner();
    const identityId = await newIdentity(externalId, { meta: { plan: 'pro' } });
    const rootKeyWith = async (...permissions: string[]) =>
      (await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions })).key;
    const change = (rootKey: string) =>
      fleet.ok('identities.updateIdentity', { identityId, ratelimits: [] }, { rootKey });
    const blind = await change(await rootKeyWith('root.*.update_identity'));
    expect(Object.keys(blind).sort()).toEqual(['id', 'propagation']);
    const seeing = await change(await rootKeyWith('root.*.update_identity', 'root.*.read_identity'));
    expect(seeing).toMatchObject({ id: identityId, externalId, meta: { plan: 'pro' } });
  });

  test('is shown by id or owner and listed in order', async () => {
    await fleet.ok('permissions.createRole', { name: 'beside' });
    const owners = [newOwner(), newOwner(), newOwner()];
    const ids: string[] = [];
    for (const owner of owners) ids.push(await newIdentity(owner, { meta: { of: owner } }));
    const shown = {
      id: ids[1],
      externalId: owners[1],
      enabled: true,
      ratelimits: [],
      concurrency: [],
      meta: { of: owners[1] },
      roles: [],
      sequence: expect.any(Number),
    };
    expect(await fleet.ok('identities.getIdentity', { identityId: ids[1] })).toEqual(shown);
    expect(await fleet.ok('identities.getIdentity', { externalId: owners[1] })).toEqual(shown);
    const listed: string[] = [];
    let total = 0;
    for (let cursor: string | undefined, pages = 0; pages === 0 || cursor; pages++) {
      const page = await fleet.ok('identities.listIdentities', { limit: '2', ...(cursor ? { cursor } : {}) });
      listed.push(...page.identities.map(({ id }: { id: string }) => id));
      ({ cursor, total } = page);
    }
    expect(listed.slice(-3)).toEqual(ids);
    expect(listed).toHaveLength(total);
    expect(new Set(listed).size).toBe(total);
    const roles = await fleet.ok('permissions.listRoles');
    expect(roles.map(({ name }: { name: string }) => name)).toEqual(['beside']);
  });

  test('is refused if the owner has one already', async () => {
    const externalId = newOwner();
    await newIdentity(externalId);
    const again = await fleet.admin('identities.createIdentity', { externalId });
    expect([again.status, again.body.error.message]).toEqual([
      409,
      'externalId: an identity with it exists already',
    ]);
    const both = await Promise.all(
      Array.from({ length: 4 }, () => fleet.admin('identities.createIdentity', { externalId: 'twice' })),
    );
    expect(both.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409]);
    await fleet.ok('permissions.createRole', { name: 'same' });
    await newIdentity('same');
  });

  test('survives a disable, and its keys a delete', async () => {
    const externalId = newOwner();
    const identityId = await newIdentity(externalId, { enabled: false });
    const { key, keyId } = await newKey({ externalId });
    expect((await fleet.admin('identities.deleteIdentity', { identityId })).status).toBe(409);
    expect(await codes(key)).toEqual(['DISABLED', 'DISABLED']);
    await setEnabled(externalId, true);
    const { propagation } = await fleet.ok('identities.deleteIdentity', { identityId });
    expect(propagation.state).toBe('complete');
    for (const body of await verdicts(key)) {
      expect(body.code).toBe('VALID');
      expect(body).not.toHaveProperty('identity');
    }
    expect(await fleet.ok('keys.getKey', { keyId })).not.toHaveProperty('identity');
    for (const [operation, fields] of [
      ['identities.getIdentity', { identityId }],
      ['identities.updateIdentity', { identityId, enabled: false }],
      ['identities.deleteIdentity', { identityId }],
    ] as const)
      expect((await fleet.admin(operation, fields)).status, operation).toBe(404);
    // The id follows from the owner. Whoever remembers that there is none hears of the new one.
    expect(await newIdentity(externalId, { enabled: false })).toBe(identityId);
    for (const code of await told(key)) expect(code).not.toBe('VALID');
    expect(await codes(key)).toEqual(['DISABLED', 'DISABLED']);
  });

  test('tells its progress and who stopped whom', async () => {
    const externalId = newOwner();
    const identityId = await newIdentity(externalId);
    const { propagation } = await setEnabled(externalId, false);
    const sequence = String(propagation.sequence);
    expect(await fleet.ok('identities.getIdentityPropagation', { identityId, sequence })).toMatchObject({
      propagation: { state: 'complete', laggards: [] },
    });
    const { events } = await fleet.ok('audit.listEvents');
    expect(events[0]).toMatchObject({
      ...{ operation: 'identities.updateIdentity', on: { identityId } },
      ...{ before: { enabled: true }, after: { enabled: false } },
    });
  });

  test('is no role, and a role is no identity', async () => {
    const identityId = await newIdentity(newOwner());
    const { roleId } = await fleet.ok('permissions.createRole', { name: 'no-identity' });
    for (const [operation, fields] of [
      ['permissions.getRole', { roleId: identityId }],
      ['permissions.setRolePermissions', { roleId: identityId, permissions: [] }],
      ['permissions.deleteRole', { roleId: identityId }],
      ['identities.getIdentity', { identityId: roleId }],
      ['identities.updateIdentity', { identityId: roleId, enabled: false }],
      ['identities.deleteIdentity', { identityId: roleId }],
    ] as const)
      expect((await fleet.admin(operation, fields)).status, operation).toBe(400);
  });
});
