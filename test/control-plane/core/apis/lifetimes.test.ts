import { afterAll, beforeAll, expect, test } from 'vitest';
import { hashSecret } from '../../../../shared/rules/key-format.ts';
import { Fleet } from '../../../harness/fleet.ts';

const DAY = 86_400_000;
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
});
afterAll(() => fleet.stop());

const inDays = (days: number) => Date.now() + days * DAY;
const newApi = (apiId: string, rules: object) => fleet.ok('apis.createApi', { apiId, name: apiId, ...rules });
const expiresOf = async (keyId: string) => (await fleet.ok('keys.getKey', { keyId })).expires;
async function refusal(operation: string, input: object) {
  const { status, body } = await fleet.admin(operation, input);
  return [status, body.error?.message];
}
const tooLong = (apiId: string) => [
  400,
  expect.stringMatching(
    `^expires: keys of api ${apiId} may live at most 90 days from now \\(its maxLifetimeMs\\); set an expiry within that`,
  ),
];

test('new keys get the default lifetime', async () => {
  const before = Date.now();
  const rules = { defaultLifetimeMs: 30 * DAY, maxLifetimeMs: 90 * DAY };
  expect(await newApi('both', rules)).toMatchObject(rules);
  expect(await fleet.ok('apis.getApi', { apiId: 'both' })).toMatchObject(rules);
  const { keyId, key, expires } = await fleet.ok('keys.createKey', { apiId: 'both' });
  expect(expires).toBeGreaterThanOrEqual(before + 30 * DAY);
  expect(expires).toBeLessThanOrEqual(inDays(30));
  expect(await expiresOf(keyId)).toBe(expires);
  expect((await fleet.verify(key)).body).toMatchObject({ code: 'VALID', expires });
  const { events } = await fleet.ok('audit.listEvents', { keyId });
  expect(events[0].after).toMatchObject({ expires });

  const own = inDays(60);
  const asked = await fleet.ok('keys.createKey', { apiId: 'both', expires: own });
  expect(asked).not.toHaveProperty('expires');
  expect(await expiresOf(asked.keyId)).toBe(own);
  const keys = [{ sha256: hashSecret('imported') }, { sha256: hashSecret('later'), expires: own }];
  const { results } = await fleet.ok('keys.importKeys', { apiId: 'both', keys });
  expect(await expiresOf(results[0].keyId)).toBeGreaterThanOrEqual(before + 30 * DAY);
  expect(await expiresOf(results[1].keyId)).toBe(own);
});

test('no key may be given a longer life', async () => {
  await newApi('max', { maxLifetimeMs: 90 * DAY });
  const refused = tooLong('max');
  expect(await refusal('keys.createKey', { apiId: 'max' })).toEqual(refused);
  expect(await refusal('keys.createKey', { apiId: 'max', expires: inDays(91) })).toEqual(refused);
  expect((await fleet.ok('apis.listKeys', { apiId: 'max' })).total).toBe(0);
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'max', expires: inDays(89) });
  for (const expires of [inDays(91), null]) {
    expect(await refusal('keys.updateKey', { keyId, expires })).toEqual(refused);
    expect(await refusal('keys.updateKeys', { apiId: 'max', keyIds: [keyId], expires })).toEqual(refused);
  }
  await fleet.ok('keys.updateKey', { keyId, expires: inDays(50) });
  const keys = [
    { sha256: hashSecret('a'), expires: inDays(91) },
    { sha256: hashSecret('b') },
    { sha256: hashSecret('c'), expires: inDays(89) },
  ];
  const { results } = await fleet.ok('keys.importKeys', { apiId: 'max', keys });
  const [, message] = refused;
  expect(results).toEqual([
    { result: 'refused', code: 'BAD_REQUEST', message },
    { result: 'refused', code: 'BAD_REQUEST', message },
    { result: 'created', keyId: expect.any(String) },
  ]);
  // A refused import leaves nothing behind: the same secret can come again.
  const again = { apiId: 'max', keys: [{ sha256: hashSecret('a'), expires: inDays(1) }] };
  expect((await fleet.ok('keys.importKeys', again)).results[0].result).toBe('created');
});

test('a new rule changes no existing key', async () => {
  await newApi('old', {});
  const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'old' });
  await fleet.ok('apis.updateApi', { apiId: 'old', maxLifetimeMs: 90 * DAY });
  expect(await expiresOf(keyId)).toBeUndefined();
  expect(await fleet.verdict(key)).toBe('VALID');
  await fleet.ok('keys.updateKey', { keyId, name: 'renamed' });
  // A rotation keeps the expiry, so the new key would break the rule.
  const [status, message] = await refusal('keys.rerollKey', { keyId, expiration: 0 });
  expect([status, message]).toEqual(tooLong('old'));
  expect(message).toContain(`for key ${keyId} with keys.updateKey, then reroll it`);
  expect(await fleet.verdict(key)).toBe('VALID');
  const expires = inDays(80);
  await fleet.ok('keys.updateKey', { keyId, expires });
  const { keyId: newId } = await fleet.ok('keys.rerollKey', { keyId, expiration: 0 });
  expect(await expiresOf(newId)).toBe(expires);
  await fleet.ok('apis.updateApi', { apiId: 'old', maxLifetimeMs: null });
  await fleet.ok('keys.updateKey', { keyId: newId, expires: null });
});

test('a repeated rotation names the key to change', async () => {
  await newApi('again', {});
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'again' });
  const rotation = { keyId, expiration: 0, operationId: 'rotation-again-1' };
  const { keyId: undelivered } = await fleet.ok('keys.rerollKey', rotation);
  await fleet.ok('apis.updateApi', { apiId: 'again', maxLifetimeMs: 90 * DAY });
  const [status, message] = await refusal('keys.rerollKey', rotation);
  expect([status, message]).toEqual(tooLong('again'));
  expect(message).toContain(`for key ${undelivered} with keys.updateKey, then reroll it`);
  await fleet.ok('keys.updateKey', { keyId: undelivered, expires: inDays(80) });
  await fleet.ok('keys.rerollKey', rotation);
});

test('a default above the maximum is refused', async () => {
  const refused = (above: number, max: number) => [
    400,
    `defaultLifetimeMs: must be at most maxLifetimeMs; ${above} is above ${max}, so lower it or raise that`,
  ];
  const rules = { defaultLifetimeMs: 3 * DAY, maxLifetimeMs: 2 * DAY };
  expect(await refusal('apis.createApi', { name: 'x', apiId: 'x', ...rules })).toEqual(
    refused(3 * DAY, 2 * DAY),
  );
  await newApi('fit', { defaultLifetimeMs: 3 * DAY });
  const update = (patch: object) => refusal('apis.updateApi', { apiId: 'fit', ...patch });
  expect(await update({ maxLifetimeMs: 2 * DAY })).toEqual(refused(3 * DAY, 2 * DAY));
  expect(await update({ maxLifetimeMs: 2 * DAY, defaultLifetimeMs: DAY })).toEqual([200, undefined]);
  expect(await update({ defaultLifetimeMs: 3 * DAY })).toEqual(refused(3 * DAY, 2 * DAY));
  expect(await update({ defaultLifetimeMs: 3 * DAY, maxLifetimeMs: null })).toEqual([200, undefined]);
  const { events } = await fleet.ok('audit.listEvents', { apiId: 'fit' });
  expect(events[0]).toMatchObject({
    before: { defaultLifetimeMs: DAY, maxLifetimeMs: 2 * DAY },
    after: { defaultLifetimeMs: 3 * DAY, maxLifetimeMs: null },
  });
});

test.each(['defaultLifetimeMs', 'maxLifetimeMs'])('bad values of %s are refused', async (rule) => {
  await newApi('bad', {}).catch(() => undefined);
  for (const value of [0, -1, 59_999, 3_155_760_000_001, 1.5, '90d', '86400000', true, {}]) {
    const [status, message] = await refusal('apis.updateApi', { apiId: 'bad', [rule]: value });
    expect([status, message]).toEqual([400, expect.stringMatching(`^${rule}: `)]);
  }
  expect((await fleet.admin('apis.createApi', { name: 'x', [rule]: null })).status).toBe(400);
});
