import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createAdmin } from '../../../../control-plane/clients/client/admin.ts';
import { callsOnce } from '../../../../shared/redis/redis-keys.ts';
import { hashSecret } from '../../../../shared/rules/key-format.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 1 });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'Shop' });
});
afterAll(() => fleet.stop());

const call = (path: string, body: object, name: string, rootKey = ROOT_KEY) =>
  fleet.post(`${fleet.controlPlanes[0]?.address}${path}`, body, {
    ...{ authorization: `Bearer ${rootKey}`, 'idempotency-key': name },
  });
const marks = () => fleet.client.keys('kf:n:*:*');
/** Makes the call with this name look as if its process had been killed before it could store the answer. */
async function interrupt(known: readonly string[]): Promise<void> {
  for (const mark of await marks())
    if (!known.includes(mark)) await fleet.client.multi().hdel(mark, 'a').hset(mark, 'u', '0').exec();
}

const CREATIONS: readonly [path: string, body: object, isNamed?: true][] = [
  ['/v1/keys.createKey', { apiId: 'shop', name: 'Ada', remaining: 5 }],
  ['/v2/keys.createKey', { apiId: 'shop', name: 'Ada' }],
  ['/v1/apis.createApi', { name: 'Another' }],
  ['/v2/apis.createApi', { name: 'Another' }],
  ['/v1/rootKeys.createRootKey', { name: 'ops', permissions: ['api.shop.read_key'] }],
  ['/v1/webhooks.createEndpoint', { url: 'https://hooks.example.com/x' }],
  ['/v1/identities.createIdentity', { externalId: 'ada' }, true],
  ['/v1/permissions.createRole', { name: 'reader' }, true],
  ['/v1/permissions.createPermission', { name: 'files.read' }, true],
];

describe('an Idempotency-Key', () => {
  test.each(CREATIONS)(
    'makes %s create one thing, also after an interruption',
    async (path, body, isNamed) => {
      const name = `create ${path}`.replace(' ', '-');
      const known = await marks();
      const first = await call(path, body, name);
      expect(first.status, JSON.stringify(first.body)).toBe(200);
      // In quotes, as the draft of the IETF has it.
      expect((await call(path, body, `"${name}"`)).body).toEqual(first.body);
      await interrupt(known);
      const resumed = await call(path, body, name);
      // What has a unique name is not created twice anyway.
      if (isNamed) expect(resumed.status).toBe(409);
      else {
        const { meta: _, ...again } = resumed.body;
        expect(first.body).toMatchObject(
          JSON.parse(JSON.stringify(again).replace(/,?"propagation":\{.*?\}/, '')),
        );
      }
    },
  );

  test('makes a top-up once, however many came since', async () => {
    for (const [path, body] of [
      ['/v1/keys.updateRemaining', { op: 'increment', value: 5 }],
      ['/v2/keys.updateCredits', { operation: 'increment', value: 5 }],
    ] as const) {
      const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 10 });
      const known = await marks();
      const names = Array.from({ length: 40 }, (_, i) => `evt_${path.slice(1, 3)}_${i}`);
      for (const name of names) expect((await call(path, { keyId, ...body }, name)).status).toBe(200);
      await interrupt(known);
      for (const name of names) expect((await call(path, { keyId, ...body }, name)).status).toBe(200);
      expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ remaining: 210 });
    }
    const { identityId: _, ...customer } = await fleet.ok('identities.createIdentity', {
      ...{ externalId: 'topped-up', credits: { remaining: 1 } },
    });
    expect(customer).toMatchObject({ propagation: { state: 'complete' } });
    const change = { externalId: 'topped-up', op: 'increment', value: 2 };
    const known = await marks();
    await call('/v1/identities.updateCredits', change, 'evt_customer');
    await interrupt(known);
    expect((await call('/v1/identities.updateCredits', change, 'evt_customer')).body).toMatchObject({
      remaining: 3,
    });
  });

  test('makes a rotation once, and shows its secret again', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const rotate = () => call('/v1/keys.rerollKey', { keyId, expiration: 60_000 }, 'rotation');
    const first = await rotate();
    expect(first.status).toBe(200);
    expect((await rotate()).body).toEqual(first.body);
    expect(await fleet.verdict(first.body.key)).toBe('VALID');
  });

  test('is refused with another body, or while the call is in progress', async () => {
    const known = await marks();
    await call('/v1/keys.createKey', { apiId: 'shop' }, 'one-name');
    const other = await call('/v1/keys.createKey', { apiId: 'shop', name: 'x' }, 'one-name');
    expect(other).toMatchObject({ status: 409, body: { error: { code: 'CONFLICT' } } });
    const [mark = ''] = (await marks()).filter((each) => !known.includes(each));
    await fleet.client
      .multi()
      .hdel(mark, 'a')
      .hset(mark, 'u', String(Date.now() + 60_000))
      .exec();
    const busy = await call('/v1/keys.createKey', { apiId: 'shop' }, 'one-name');
    expect(busy).toMatchObject({ status: 409, headers: { 'retry-after': '1' } });
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 1 });
    const both = { keyId, op: 'increment', value: 1, operationId: 'another-operation-name' };
    expect((await call('/v1/keys.updateRemaining', both, 'header-operation-name')).status).toBe(400);
    expect((await call('/v1/keys.updateRemaining', both, 'another-operation-name')).status).toBe(200);
    expect((await call('/v1/keys.createKey', { apiId: 'shop' }, 'with blanks')).status).toBe(400);
  });

  test('makes calls at the same time create one key', async () => {
    const before = (await fleet.ok('apis.listKeys', { apiId: 'shop' })).total;
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => call('/v1/keys.createKey', { apiId: 'shop' }, 'at-once')),
    );
    expect(answers.filter(({ status }) => ![200, 409].includes(status))).toEqual([]);
    expect((await fleet.ok('apis.listKeys', { apiId: 'shop' })).total).toBe(before + 1);
  });

  test('of a refused call is free again', async () => {
    const body = { apiId: 'later', keyId: 'key_unknown', op: 'increment', value: 1 };
    const { apiId: _, ...change } = body;
    expect((await call('/v1/keys.updateRemaining', change, 'refused-once')).status).toBe(404);
    expect((await call('/v1/keys.createKey', { apiId: 'shop' }, 'refused-once')).status).toBe(200);
  });

  test('leaves no secret in Redis, and no second event', async () => {
    const created = await call('/v1/keys.createKey', { apiId: 'shop' }, 'secret-name');
    await call('/v1/keys.createKey', { apiId: 'shop' }, 'secret-name');
    const { key, keyId } = created.body;
    const stored = await Promise.all((await marks()).map((mark) => fleet.client.hvals(mark)));
    expect(stored.flat().filter((text) => text.includes(key) || text.includes('secret-name'))).toEqual([]);
    const { events } = await fleet.ok('audit.listEvents', { keyId });
    expect(
      events.filter(({ operation }: { operation: string }) => operation === 'keys.createKey'),
    ).toHaveLength(1);
  });

  test('belongs to one caller', async () => {
    const { key } = await fleet.ok('rootKeys.createRootKey', {
      name: 'x',
      permissions: ['api.*.create_key'],
    });
    const mine = await call('/v1/keys.createKey', { apiId: 'shop' }, 'a-common-name');
    const theirs = await call('/v1/keys.createKey', { apiId: 'shop' }, 'a-common-name', key);
    expect(theirs.body.keyId).not.toBe(mine.body.keyId);
  });

  test('is one of 10,000 a day, and none is forgotten', async () => {
    const made = { rootKey: '', name: 'counted' };
    const { key, rootKeyId } = await fleet.ok('rootKeys.createRootKey', {
      ...{ name: made.name, permissions: ['api.*.create_key'] },
    });
    const create = (name: string) => call('/v1/keys.createKey', { apiId: 'shop' }, name, key);
    const first = await create('the-first');
    await fleet.client.set(callsOnce(hashSecret(rootKeyId)), '10000', 'KEEPTTL');
    const over = await create('one-too-many');
    expect(over.status).toBe(429);
    expect(Number(over.headers['retry-after'])).toBeGreaterThan(80_000);
    expect((await create('the-first')).body).toEqual(first.body);
  });

  test('is not used up by calls that are refused', async () => {
    const { key, rootKeyId } = await fleet.ok('rootKeys.createRootKey', {
      ...{ name: 'refused', permissions: ['api.shop.create_key', 'api.shop.update_key'] },
    });
    const count = async () => Number((await fleet.client.get(callsOnce(hashSecret(rootKeyId)))) ?? 0);
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 1 });
    const change = { keyId, op: 'increment', value: 1 };
    expect((await call('/v1/keys.updateRemaining', change, 'effective', key)).status).toBe(200);
    const refusals: [path: string, body: object, status: number][] = [
      ['/v1/keys.updateRemaining', { keyId: 'key_unknown', op: 'increment', value: 1 }, 404],
      ['/v1/keys.updateRemaining', { keyId, op: 'increment', value: -1 }, 400],
      ['/v1/keys.createKey', { apiId: 'shop', expires: 1_700_000_000_000 }, 400],
      ['/v1/keys.createKey', { apiId: 'elsewhere' }, 404],
      ['/v1/keys.rerollKey', { keyId: 'key_unknown', expiration: 0 }, 404],
    ];
    for (const [path, body, status] of refusals)
      for (const name of [`${path}-one`, `${path}-two`])
        expect((await call(path, body, name, key)).status, path).toBe(status);
    expect(await count()).toBe(1);
  });

  test('is an option of the client', async () => {
    const admin = createAdmin({ url: fleet.controlPlanes[0]?.address ?? '', rootKey: ROOT_KEY });
    const create = () => admin.keys.createKey({ apiId: 'shop' }, { idempotencyKey: 'client-name' });
    expect(await create()).toEqual(await create());
  });
});
