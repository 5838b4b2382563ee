import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
  await fleet.addControlPlane();
});
afterAll(() => fleet.stop());

/** The prefix of a key, and the characters that its random bytes take. */
const shapeOf = ({ key }: { key: string }) => {
  const [random = '', ...prefix] = key.split('_').reverse();
  return [prefix.reverse().join('_'), random.length];
};
const create = (apiId: string, input: object = {}, at = 0) =>
  fleet.ok('keys.createKey', { apiId, ...input }, { at });
const [LENGTH_16, LENGTH_24, LENGTH_32] = [28, 39, 49];

test('keys get the defaults of their API', async () => {
  const about = { name: 'Shop', defaultPrefix: 'shop_live', defaultBytes: 32 };
  expect(await fleet.ok('apis.createApi', { apiId: 'shop', ...about })).toEqual({ apiId: 'shop', ...about });
  expect(await fleet.ok('apis.getApi', { apiId: 'shop' })).toMatchObject({ id: 'shop', ...about });
  const { apis } = await fleet.ok('apis.listApis');
  expect(apis).toContainEqual(expect.objectContaining({ id: 'shop', ...about }));
  const key = await create('shop');
  expect(shapeOf(key)).toEqual(['shop_live', LENGTH_32]);
  expect(await fleet.verdict(key.key)).toBe('VALID');
  expect((await fleet.ok('keys.getKey', { keyId: key.keyId })).start).toBe(key.key.slice(0, 14));
  expect(shapeOf(await create('shop', { prefix: 'x' }))).toEqual(['x', LENGTH_32]);
  expect(shapeOf(await create('shop', { byteLength: 16 }))).toEqual(['shop_live', LENGTH_16]);
  expect(shapeOf(await create('shop', { prefix: 'x', byteLength: 16 }))).toEqual(['x', LENGTH_16]);
});

test('changed defaults apply to the next key', async () => {
  await fleet.ok('apis.createApi', { apiId: 'changing', name: 'one' });
  const apiId = 'changing';
  const steps = [
    [{}, ['', LENGTH_16]],
    [{ defaultPrefix: 'a' }, ['a', LENGTH_16]],
    [{ defaultBytes: 24 }, ['a', LENGTH_24]],
    [{ defaultPrefix: 'b', defaultBytes: 32, name: 'two' }, ['b', LENGTH_32]],
    [{ defaultPrefix: null }, ['', LENGTH_32]],
    [{ defaultBytes: null }, ['', LENGTH_16]],
  ] as const;
  for (const [i, [change, shape]] of steps.entries()) {
    const removed = Object.entries(change).flatMap(([name, value]) => (value === null ? [name] : []));
    expect(await fleet.ok('apis.updateApi', { apiId, ...change }, { at: i % 2 })).toEqual({
      ...{ apiId, sequence: i },
      ...(removed.length > 0 ? { removed } : {}),
    });
    for (const at of [0, 1]) expect(shapeOf(await create(apiId, {}, at))).toEqual(shape);
  }
  const api = await fleet.ok('apis.getApi', { apiId });
  expect(api).toEqual({ id: apiId, name: 'two', createdAt: api.createdAt, sequence: 5, keys: 12 });
});

test('a key made during a change has whole defaults', async () => {
  await fleet.ok('apis.createApi', { apiId: 'racing', name: 'r', defaultPrefix: 'a', defaultBytes: 24 });
  const both = [
    { defaultPrefix: 'b', defaultBytes: 32 },
    { defaultPrefix: 'a', defaultBytes: 24 },
  ] as const;
  const created: { key: string; keyId: string }[] = [];
  let over = false;
  const changing = (async () => {
    for (let i = 0; !over; i++) await fleet.ok('apis.updateApi', { apiId: 'racing', ...both[i % 2] });
  })();
  const creating = Array.from({ length: 4 }, async (_, at) => {
    for (let i = 0; i < 25; i++) {
      const { status, body } = await fleet.admin('keys.createKey', { apiId: 'racing' }, { at: at % 2 });
      if (status === 200) created.push(body);
      else expect([status, body.error.message]).toEqual([503, expect.stringContaining('defaults')]);
    }
  });
  await Promise.all(creating);
  over = true;
  await changing;
  expect(created.length).toBeGreaterThan(0);
  for (const key of created) {
    expect([
      ['a', LENGTH_24],
      ['b', LENGTH_32],
    ]).toContainEqual(shapeOf(key));
    expect(await fleet.verdict(key.key)).toBe('VALID');
  }
  // What was made in vain left nothing behind.
  const { total } = await fleet.ok('apis.listKeys', { apiId: 'racing', limit: '1' });
  expect(total).toBe(created.length);
});

test('defaults end with their API', async () => {
  await fleet.ok('apis.createApi', { apiId: 'ended', name: 'e', defaultPrefix: 'old' });
  expect(shapeOf(await create('ended'))).toEqual(['old', LENGTH_16]);
  await fleet.ok('apis.deleteApi', { apiId: 'ended' });
  await fleet.until(async () => (await fleet.admin('keys.createKey', { apiId: 'ended' })).status === 200);
  expect(shapeOf(await create('ended'))).toEqual(['', LENGTH_16]);
});

test('audits a change with what was before', async () => {
  await fleet.ok('apis.createApi', { apiId: 'told', name: 'one', defaultBytes: 24 });
  await fleet.ok('apis.updateApi', { apiId: 'told', name: 'two', defaultPrefix: 'p', defaultBytes: null });
  expect((await fleet.admin('apis.updateApi', { apiId: 'nowhere', name: 'x' })).status).toBe(404);
  const { events } = await fleet.ok('audit.listEvents', { apiId: 'told' });
  expect(events[0]).toMatchObject({
    operation: 'apis.updateApi',
    outcome: 'OK',
    before: { name: 'one', defaultPrefix: null, defaultBytes: 24 },
    after: { name: 'two', defaultPrefix: 'p', defaultBytes: null },
  });
  expect(events[1].after).toEqual({ name: 'one', defaultBytes: 24 });
});

test.each([
  [{ defaultPrefix: 'no-dash' }, /^defaultPrefix: /],
  [{ defaultPrefix: '' }, /^defaultPrefix: /],
  [{ defaultPrefix: 'x'.repeat(17) }, /^defaultPrefix: /],
  [{ defaultBytes: 15 }, /^defaultBytes: /],
  [{ defaultBytes: 256 }, /^defaultBytes: /],
  [{ defaultBytes: '24' }, /^defaultBytes: /],
  [{ name: null }, /^name: /],
  [{ name: '\ud800' }, /^name: must be well-formed Unicode$/],
  [{ nmae: 'x' }, /^nmae: unknown field; did you mean name\?$/],
])('refuses %j in updateApi and null in createApi', async (input, message) => {
  const { status, body } = await fleet.admin('apis.updateApi', { apiId: 'refused', ...input });
  expect([status, body.error.message]).toEqual([400, expect.stringMatching(message)]);
  for (const field of ['defaultPrefix', 'defaultBytes'])
    expect((await fleet.admin('apis.createApi', { name: 'x', [field]: null })).status).toBe(400);
});
