import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

/** A cursor continues the listing that returned it, and no other. */
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  for (const apiId of ['shop', 'books'])
    for (const externalId of ['ada', 'ada', 'eve', 'eve'])
      await fleet.ok('keys.createKey', { apiId, externalId, name: `of ${externalId}` });
  for (const externalId of ['ada', 'eve']) await fleet.ok('identities.createIdentity', { externalId });
  for (const name of ['reader', 'writer']) await fleet.ok('permissions.createRole', { name });
  for (let i = 0; i < 2; i++)
    await fleet.post(`${fleet.controlPlanes[0]?.address}/dashboard/session`, { rootKey: ROOT_KEY });
});
afterAll(() => fleet.stop());

const OPERATIONS: readonly (readonly [operation: string, query: object, ...others: object[]])[] = [
  ['apis.listApis', {}],
  ['apis.listKeys', { apiId: 'shop' }, { apiId: 'books' }, { sort: '-createdAt' }, { search: 'ada' }],
  [
    'apis.listKeys',
    { apiId: 'shop', sort: 'name', externalId: 'ada' },
    { externalId: 'eve' },
    { apiId: 'books' },
  ],
  ['identities.listKeys', { externalId: 'ada' }, { externalId: 'eve' }],
  ['identities.listIdentities', {}, { search: 'a' }],
  ['audit.listEvents', {}, { operation: 'keys.createKey' }, { refused: 'true' }],
  ['rootKeys.listSessions', {}],
];

test.each(OPERATIONS.map(([operation, query, ...others]) => ({ operation, query, others })))(
  '$operation $query: whole, and of the same listing',
  async ({ operation, query, others }) => {
    const { cursor } = await fleet.ok(operation, { ...query, limit: '1' });
    expect(cursor).toEqual(expect.any(String));
    await fleet.ok(operation, { ...query, limit: '2', cursor });
    const refused = [
      ...Array.from({ length: cursor.length - 1 }, (_, i) => ({ ...query, cursor: cursor.slice(0, i + 1) })),
      ...others.map((other) => ({ ...query, ...other, cursor })),
    ];
    for (const input of refused) {
      const { status, body } = await fleet.admin(operation, { ...input, limit: '1' });
      expect([input, status]).toEqual([input, 400]);
      expect(body.error.message).toMatch(/^cursor: must be one that \w.* returned for the same listing/);
    }
    for (const [name, other] of OPERATIONS)
      if (name !== operation) {
        const { status } = await fleet.admin(name, { ...other, cursor });
        expect([name, status]).toEqual([name, 400]);
      }
  },
);

test('/v2/ refuses the cursor of another search', async () => {
  const list = async (body: object) =>
    fleet.post(`${fleet.controlPlanes[0]?.address}/v2/permissions.listRoles`, body, {
      authorization: `Bearer ${ROOT_KEY}`,
    });
  const { cursor } = (await list({ limit: 1 })).body.pagination;
  expect((await list({ limit: 1, cursor })).status).toBe(200);
  expect((await list({ limit: 1, cursor, search: 'reader' })).status).toBe(400);
});
