import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

/** A thing that several admins may change at once. */
interface Thing {
  readonly make: () => Promise<object>;
  readonly read: string;
  readonly change: string;
  /** A change, different for each number. */
  readonly fields: (n: number) => object;
}

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'Shop' });
});
afterAll(() => fleet.stop());

let made = 0;
const THINGS: Readonly<Record<string, Thing>> = {
  'a key': {
    make: async () => ({ keyId: (await fleet.ok('keys.createKey', { apiId: 'shop' })).keyId }),
    read: 'keys.getKey',
    change: 'keys.updateKey',
    fields: (n) => ({ name: `name ${n}` }),
  },
  "a key's credits": {
    make: async () => ({ keyId: (await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 5 })).keyId }),
    read: 'keys.getKey',
    change: 'keys.updateKey',
    fields: (n) => ({ remaining: 100 + n }),
  },
  'an identity': {
    make: async () => {
      const { identityId } = await fleet.ok('identities.createIdentity', {
        externalId: `customer-${made++}`,
      });
      return { identityId };
    },
    read: 'identities.getIdentity',
    change: 'identities.updateIdentity',
    fields: (n) => ({ meta: { n } }),
  },
  'a role': {
    make: async () => ({
      roleId: (await fleet.ok('permissions.createRole', { name: `role-${made++}` })).roleId,
    }),
    read: 'permissions.getRole',
    change: 'permissions.setRolePermissions',
    fields: (n) => ({ permissions: [`files.${n}`] }),
  },
  'an API': {
    make: async () => {
      const { apiId } = await fleet.ok('apis.createApi', { name: 'Another' });
      return { apiId };
    },
    read: 'apis.getApi',
    change: 'apis.updateApi',
    fields: (n) => ({ name: `Shop ${n}` }),
  },
};

describe.each(Object.entries(THINGS))('ifSequence of %s', (_name, { make, read, change, fields }) => {
  test('lets through one of many changes at once', async () => {
    const reference = await make();
    const { sequence } = await fleet.ok(read, reference);
    expect(sequence).toBeTypeOf('number');
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, n) =>
        fleet.admin(change, { ...reference, ...fields(n), ifSequence: sequence }),
      ),
    );
    const winner = answers.findIndex(({ status }) => status === 200);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(7).fill(409)]);
    const after = await fleet.ok(read, reference);
    expect(after).not.toMatchObject({ sequence });
    const [[field, value] = []] = Object.entries(fields(winner));
    const shown =
      field === 'permissions' ? after.permissions.map(({ id }: { id: string }) => id) : after[field ?? ''];
    expect(shown).toEqual(value);
  });

  test('refuses with the present sequence, which is then accepted', async () => {
    const reference = await make();
    const { sequence } = await fleet.ok(read, reference);
    await fleet.ok(change, { ...reference, ...fields(1) });
    const { sequence: present } = await fleet.ok(read, reference);
    const late = await fleet.admin(change, { ...reference, ...fields(2), ifSequence: sequence });
    expect(late).toMatchObject({ status: 409, body: { error: { code: 'CONFLICT' } } });
    expect(late.body.error.message).toBe(
      `ifSequence: somebody changed it after ${sequence}, the present sequence is ${present}; read it again, then send the change with that`,
    );
    await fleet.ok(change, { ...reference, ...fields(2), ifSequence: present });
  });

  test.each([-1, 1.5, '1', null, Number.MAX_SAFE_INTEGER + 1])('refuses %j', async (ifSequence) => {
    const answer = await fleet.admin(change, { ...(await make()), ...fields(1), ifSequence });
    expect(answer.status).toBe(400);
    expect(answer.body.error.message).toMatch(/^ifSequence: must be/);
  });
});

test('a call that changes nothing is refused too', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  await fleet.ok('keys.updateKey', { keyId, ifSequence: 0 });
  expect(await fleet.admin('keys.updateKey', { keyId, ifSequence: 7 })).toMatchObject({ status: 409 });
});
