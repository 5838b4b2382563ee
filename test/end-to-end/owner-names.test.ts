import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../harness/fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { FOREIGN_KEYS: 'true' } });
});
afterAll(() => fleet.stop());

const OWNER = { externalId: 'öwner 🦊', ownerId: 'öwner 🦊' };
const keyOf = (keyId: string) => fleet.ok('keys.getKey', { keyId });

test('an owner is the same under each of its names', async () => {
  const given = [{ externalId: OWNER.externalId }, { ownerId: OWNER.ownerId }, OWNER];
  for (const owner of given) {
    const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'owned', ...owner });
    expect(await keyOf(keyId)).toMatchObject(OWNER);
    await fleet.verdict(key);
    expect((await fleet.verify(key)).body).toMatchObject(OWNER);
  }
  const sha256 = createHash('sha256').update('made elsewhere').digest('hex');
  const keys = [{ sha256, ownerId: OWNER.ownerId }];
  expect((await fleet.ok('keys.importKeys', { apiId: 'owned', keys })).results[0].result).toBe('created');
  for (const filter of given) {
    const page = await fleet.ok('apis.listKeys', { apiId: 'owned', ...filter });
    expect(page.keys).toHaveLength(4);
    for (const key of page.keys) expect(key).toMatchObject(OWNER);
  }
});

test('changes and clears an owner by each name', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'moved', ownerId: 'a' });
  const steps = [
    [{ ownerId: 'b' }, { externalId: 'b', ownerId: 'b' }],
    [{ ownerId: null }, {}],
    [{ externalId: 'c' }, { externalId: 'c', ownerId: 'c' }],
    [
      { ownerId: 'd', externalId: 'd' },
      { externalId: 'd', ownerId: 'd' },
    ],
    [{ ownerId: null, externalId: null }, {}],
  ] as const;
  for (const [change, seen] of steps) {
    await fleet.ok('keys.updateKey', { keyId, ...change });
    const { externalId, ownerId } = await keyOf(keyId);
    expect({ externalId, ownerId }).toEqual({ externalId: undefined, ownerId: undefined, ...seen });
  }
});

test('refuses two names that differ', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'torn', ownerId: 'a' });
  const sha256 = createHash('sha256').update('torn').digest('hex');
  for (const owner of [
    { externalId: 'a', ownerId: 'b' },
    { externalId: 'a', ownerId: 'A' },
    { externalId: null, ownerId: 'b' },
    { externalId: 'b', ownerId: null },
  ]) {
    const { status, body } = await fleet.admin('keys.updateKey', { keyId, ...owner });
    expect([status, body.error.message]).toEqual([400, expect.stringMatching(/^ownerId: .* externalId/)]);
  }
  const torn = { externalId: 'a', ownerId: 'b' };
  expect((await fleet.admin('apis.listKeys', { apiId: 'torn', ...torn })).status).toBe(400);
  const { results } = await fleet.ok('keys.importKeys', { apiId: 'torn', keys: [{ sha256, ...torn }] });
  expect(results).toEqual([
    { result: 'refused', code: 'BAD_REQUEST', message: expect.stringMatching(/^ownerId: /) },
  ]);
  expect(await keyOf(keyId)).toMatchObject({ externalId: 'a', ownerId: 'a' });
});

test('no answer has a missing owner or environment', async () => {
  const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'plain', name: 'n' });
  const names = (answer: object) => Object.keys(answer).sort();
  const shown = [
    'apiId',
    'createdAt',
    'enabled',
    'id',
    'keyId',
    'meta',
    'name',
    'sequence',
    'start',
    'state',
  ];
  expect(names(await keyOf(keyId))).toEqual([...shown, 'effectivePermissions'].sort());
  expect(names((await fleet.ok('apis.listKeys', { apiId: 'plain' })).keys[0])).toEqual(shown);
  await fleet.verdict(key);
  const verdict = ['apiId', 'code', 'enabled', 'keyId', 'meta', 'name', 'requestId', 'valid'];
  expect(names((await fleet.verify(key)).body)).toEqual(verdict);
});
