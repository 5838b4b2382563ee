import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { generateKey, hashSecret } from '../../../../shared/rules/key-format.ts';
import { Fleet } from '../../../harness/fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
});
afterAll(() => fleet.stop());

const ABOUT = { name: 'Ada', externalId: 'ada', environment: 'live', meta: { plan: 'pro' } };
const whoami = (key: unknown, rootKey?: string) =>
  fleet.admin('keys.whoami', { key }, rootKey === undefined ? {} : { rootKey });
const rootKeyWith = async (...permissions: string[]): Promise<string> =>
  (await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions })).key;

test('tells what getKey does, accepted or not', async () => {
  const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'shop', ...ABOUT });
  const shown = { id: keyId, keyId, apiId: 'shop', ...ABOUT, ownerId: 'ada', enabled: true };
  expect((await whoami(key)).body).toEqual({
    ...shown,
    start: key.slice(0, 4),
    createdAt: expect.any(Number),
    sequence: 0,
    state: 'enabled',
  });
  await fleet.ok('keys.updateKey', { keyId, enabled: false, expires: 100_000_000_000 });
  expect((await whoami(key)).body).toMatchObject({ ...shown, enabled: false, expires: 100_000_000_000 });
  await fleet.ok('keys.deleteKey', { keyId });
  expect((await whoami(key)).status).toBe(404);
});

test('tells a key of another format too', async () => {
  const foreign = ['sk_live_0123456789', 'ключ 🦊', 'x'.repeat(512), '🦊'.repeat(256)];
  const keys = foreign.map((key, i) => ({
    sha256: createHash('sha256').update(key).digest('hex'),
    name: `n${i}`,
  }));
  await fleet.ok('keys.importKeys', { apiId: 'foreign', keys });
  for (const [i, key] of foreign.entries()) expect((await whoami(key)).body).toMatchObject({ name: `n${i}` });
});

test.each([[''], ['x'.repeat(513)], ['\ud800'], [7], [null], [undefined]])(
  '%j is no key, and 400',
  async (key) => {
    const { status, body } = await whoami(key);
    expect([status, body.error.message]).toEqual([400, expect.stringMatching(/^key: /)]);
  },
);

test('hides a key from who may not read its API', async () => {
  const { key } = await fleet.ok('keys.createKey', { apiId: 'mine' });
  const [reader, other, stranger] = [
    await rootKeyWith('api.mine.read_key'),
    await rootKeyWith('api.mine.create_key'),
    await rootKeyWith('api.theirs.read_key'),
  ];
  expect((await whoami(key, reader)).status).toBe(200);
  expect((await whoami(key, other)).status).toBe(403);
  const [hidden, absent] = [await whoami(key, stranger), await whoami(generateKey(16), stranger)];
  const told = ({ status, body }: typeof hidden) => [status, body.error.code, body.error.message];
  expect(told(hidden)).toEqual(told(absent));
  expect(told(hidden)).toEqual([404, 'NOT_FOUND', 'key not found']);
  expect(told(await whoami(generateKey(16)))).toEqual([404, 'NOT_FOUND', 'key not found']);
});

test('says why a peppered key is not found', async () => {
  const secret = 'a-secret-of-another-system';
  await fleet.ok('keys.importKeys', { apiId: 'peppered', keys: [{ hmacSha256: 'ab'.repeat(32) }] });
  const told =
    'key (if imported by hmacSha256, only verifiers find it by its secret: ask `keys.verifyKey` for its keyId) not found';
  const stranger = await rootKeyWith('api.other.read_key');
  for (const rootKey of [undefined, stranger])
    expect((await whoami(secret, rootKey)).body.error.message).toBe(told);
  // Nobody learns that there is such a key elsewhere.
  await fleet.ok('keys.importKeys', { apiId: 'peppered', keys: [{ sha256: hashSecret(secret) }] });
  expect((await whoami(secret, stranger)).body.error.message).toBe(told);
  const [, rule] = (await fleet.ok('keys.explain', { key: `${secret}-2` })).rules;
  expect(rule).toMatchObject({ rule: 'key', passed: false, detail: expect.stringContaining('hmacSha256') });
});

test('writes down no key, and only refused calls', async () => {
  const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'quiet' });
  const absent = generateKey(16, 'absent');
  const since = String(Date.now());
  await whoami(key);
  await whoami(absent);
  await whoami(key, await rootKeyWith('api.quiet.create_key'));
  await whoami(key, await rootKeyWith('api.other.read_key'));
  await whoami(`${key}${'x'.repeat(600)}`);
  await fleet.post(`${fleet.controlPlanes[0]?.address}/v1/keys.whoami?key=${key}`, { key }, {});
  await fleet.admin('keys.whoami', { keyId: key, key });
  const operation = 'keys.whoami';
  const done = await fleet.ok('audit.listEvents', { operation, since });
  const refused = await fleet.ok('audit.listEvents', { operation, since, refused: 'true' });
  expect(done.events).toEqual([]);
  const outcomes = refused.events.map(({ outcome }: { outcome: string }) => outcome);
  expect(outcomes.sort()).toEqual(['INSUFFICIENT_PERMISSIONS', 'INSUFFICIENT_PERMISSIONS', 'UNAUTHORIZED']);
  expect(refused.events).toContainEqual(expect.objectContaining({ on: { apiId: 'quiet', keyId } }));
  for (const secret of [key, absent]) {
    expect(JSON.stringify(refused)).not.toContain(secret);
    expect(fleet.logged.join('\n')).not.toContain(secret);
  }
});

test('counts as reading, leaving disables free', async () => {
  const limited = await Fleet.start({ verifiers: 0, env: { ROOT_KEY_CALLS_PER_MINUTE: '20' } });
  try {
    const { keyId, key } = await limited.ok('keys.createKey', { apiId: 'busy' });
    let status = 200;
    for (let i = 0; i < 25 && status === 200; i++) ({ status } = await limited.admin('keys.whoami', { key }));
    expect(status).toBe(429);
    await limited.ok('keys.updateKey', { keyId, enabled: false });
  } finally {
    await limited.stop();
  }
});
