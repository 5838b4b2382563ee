import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000', USAGE_PERIOD_MS: '100' } });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'Shop' });
});
afterAll(() => fleet.stop());

const ask = (key: string) =>
  fleet.decided(() =>
    fleet.post(`${fleet.verifiers[0]?.address}/v1/keys.getSelf`, {}, { authorization: `Bearer ${key}` }),
  );
const create = (fields: object = {}): Promise<{ key: string; keyId: string }> =>
  fleet.ok('keys.createKey', { apiId: 'shop', ...fields });

test('a holder sees all that is left, and asking takes nothing', async () => {
  await fleet.ok('permissions.createRole', { name: 'pro', permissions: ['files.read'] });
  const { key, keyId } = await create({
    ...{ name: 'Ada', remaining: 10, roles: ['pro'] },
    ratelimit: { limit: 50, duration: 60_000 },
    ratelimits: [{ name: 'tokens', limit: 1000, duration: 3_600_000 }],
    concurrency: [{ name: 'jobs', limit: 3 }],
  });
  const seen = async () => (await ask(key)).body;
  for (let i = 0; i < 5; i++) {
    expect(await seen()).toMatchObject({
      ...{ keyId, apiId: 'shop', name: 'Ada', roles: ['pro'], permissions: ['files.read'] },
      credits: { remaining: 10 - i, sharedBy: 'key' },
      limits: [
        { name: 'default', limit: 50, per: '1m', used: i, from: 'key', sharedBy: 'key' },
        { name: 'tokens', limit: 1000, per: '1h', used: 0 },
      ],
      concurrency: [{ name: 'jobs', limit: 3, inUse: 0 }],
    });
    expect(await fleet.verdict(key)).toBe('VALID');
  }
  const told = await fleet.ok('keys.getAllowances', { keyId });
  const names = ({ name, limit, per }: Record<string, unknown>) => ({ name, limit, per });
  expect((await seen()).limits.map(names)).toEqual(told.limits.map(names));
});

test('asking is not counted', async () => {
  const { key, keyId } = await create();
  const { key: disabled, keyId: disabledId } = await create({ enabled: false });
  for (const each of [key, key, disabled]) await ask(each);
  expect([await fleet.verdict(key), await fleet.verdict(disabled)]).toEqual(['VALID', 'DISABLED']);
  const counts = async (id: string) =>
    (await fleet.ok('keys.getVerifications', { keyId: id })).verifications.at(-1);
  await fleet.until(async () => (await counts(keyId)).success > 0 && (await counts(disabledId)).disabled > 0);
  expect(await counts(keyId)).toMatchObject({ success: 1 });
  expect(await counts(disabledId)).toMatchObject({ disabled: 1 });
});

test('a limit of the key is its own, also if its identity has an equal one', async () => {
  const ratelimits = [{ name: 'calls', limit: 5, duration: 3_600_000, autoApply: true }];
  await fleet.ok('identities.createIdentity', { externalId: 'cyd', ratelimits });
  const { key } = await create({ externalId: 'cyd', ratelimits });
  expect((await ask(key)).body.limits).toMatchObject([{ name: 'calls', from: 'key', sharedBy: 'key' }]);
});

test('what is used up is told, and shared credits are', async () => {
  await fleet.ok('identities.createIdentity', { externalId: 'bob', credits: { remaining: 1 } });
  const { key } = await create({ externalId: 'bob', ratelimit: { limit: 1, duration: 3_600_000 } });
  expect(await fleet.verdict(key)).toBe('VALID');
  expect((await ask(key)).body).toMatchObject({
    credits: { remaining: 0, sharedBy: 'identity' },
    limits: [{ name: 'default', used: 1 }],
  });
});

test('who has no good key sees nothing', async () => {
  const { key, keyId } = await create();
  expect((await ask(key)).body).toMatchObject({ keyId, limits: [], concurrency: [] });
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(await ask(key)).toMatchObject({ status: 401, body: { error: { code: 'UNAUTHORIZED' } } });
  expect((await ask('shop_unknown')).status).toBe(401);
  expect((await ask('')).status).toBe(401);
  const bound = await create({ allowedIps: ['10.0.0.1'] });
  expect((await ask(bound.key)).status).toBe(403);
});
