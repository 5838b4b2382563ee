import { randomUUID } from 'node:crypto';
import { Unkey } from 'unkey-api-2';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';

/** The client of today, unchanged: all of it speaks `/v2/`. */
let fleet: Fleet;
let admin: Unkey;
/** All of it at one address: that of a verifier, which passes on what is not its own. */
let gateway: Unkey;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { USAGE_PERIOD_MS: '100', LOOKUP_WAIT_MS: '5000' } });
  const controlPlane = fleet.controlPlanes[0]?.address ?? '';
  await fleet.addVerifier({ CONTROL_PLANE_URL: controlPlane, LOOKUP_WAIT_MS: '5000' });
  const client = (serverURL: string) =>
    new Unkey({ rootKey: ROOT_KEY, serverURL, retryConfig: { strategy: 'none' } });
  [admin, gateway] = [client(controlPlane), client(fleet.verifiers[0]?.address ?? '')];
});
afterAll(() => fleet.stop());

const refusal = async (call: Promise<unknown>) =>
  call.then(
    () => expect.unreachable('it was not refused'),
    (error: { statusCode: number; body: string; error?: { errors?: unknown[] } }) => ({
      status: error.statusCode,
      ...(JSON.parse(error.body) as { error: { detail: string; errors?: { location: string }[] } }),
    }),
  );

describe('keys', () => {
  test('are created, changed and listed in full', async () => {
    const apiId = randomUUID();
    const fields = {
      name: 'Ada',
      externalId: 'ada',
      meta: { plan: 'pro' },
      expires: Date.now() + 86_400_000,
      permissions: ['files.read', 'files.write'],
    };
    const refill = { interval: 'monthly', amount: 100, refillDay: 15 } as const;
    const { data } = await admin.keys.createKey({
      ...{ apiId, prefix: 'shop', byteLength: 24, ...fields },
      credits: { remaining: 10, refill },
      ratelimits: [
        { name: 'default', limit: 100, duration: 60_000, autoApply: true },
        { name: 'tokens', limit: 5000, duration: 3_600_000 },
      ],
    });
    expect(data.key).toMatch(/^shop_/);
    const { keyId } = data;
    const shown = (await admin.keys.getKey({ keyId })).data;
    const { externalId, ...same } = fields;
    const identity = { id: expect.stringMatching(/^identity_/), externalId };
    expect(shown).toMatchObject({
      keyId,
      enabled: true,
      ...same,
      identity,
      credits: { remaining: 10, refill },
    });
    expect(shown.ratelimits).toEqual([
      { id: `${keyId}.default`, name: 'default', limit: 100, duration: 60_000, autoApply: true },
      { id: `${keyId}.tokens`, name: 'tokens', limit: 5000, duration: 3_600_000, autoApply: false },
    ]);
    const patch = { keyId, enabled: false, name: null, expires: null, credits: null, ratelimits: [] };
    expect((await admin.keys.updateKey(patch)).data).toEqual({});
    const changed = (await admin.keys.getKey({ keyId })).data;
    expect(changed).toMatchObject({ keyId, enabled: false, meta: fields.meta });
    for (const field of ['name', 'expires', 'credits', 'ratelimits'] as const)
      expect(changed[field]).toBeUndefined();
    for (let i = 0; i < 4; i++) await admin.keys.createKey({ apiId, externalId: `customer-${i % 2}` });
    const first = (await admin.apis.listKeys({ apiId, limit: 3 })).result;
    expect(first.data.map(({ keyId }) => keyId)).toContain(keyId);
    expect(first.pagination.hasMore).toBe(true);
    const { cursor = '' } = first.pagination;
    const rest = (await admin.apis.listKeys({ apiId, limit: 3, cursor })).result;
    expect(first.data.length + rest.data.length).toBe(5);
    expect(rest.pagination.hasMore).toBe(false);
    const of = await admin.apis.listKeys({ apiId, externalId: 'customer-1' });
    expect(of.result.data).toHaveLength(2);
  });

  test('are refused with status, detail and field', async () => {
    const apiId = randomUUID();
    expect(await refusal(admin.keys.createKey({ apiId, recoverable: true }))).toMatchObject({
      status: 400,
      error: { title: 'Bad Request', status: 400, errors: [{ location: 'body.recoverable' }] },
    });
    expect(await refusal(admin.keys.createKey({ apiId: 'a b' }))).toMatchObject({
      status: 400,
      meta: { requestId: expect.any(String) },
      error: { errors: [{ location: 'body.apiId', message: expect.stringContaining('match') }] },
    });
    expect(await refusal(admin.keys.getKey({ keyId: 'key_none' }))).toMatchObject({
      status: 404,
      error: { title: 'Not Found', status: 404, type: expect.stringContaining('NOT_FOUND') },
    });
    const stranger = new Unkey({ rootKey: 'none', serverURL: fleet.controlPlanes[0]?.address ?? '' });
    expect(await refusal(stranger.keys.getKey({ keyId: 'key_none' }))).toMatchObject({ status: 401 });
  });
});

test('one address is enough for the life of a key', async () => {
  const apiId = randomUUID();
  const fields = { name: 'Ada', externalId: 'ada', meta: { plan: 'pro' }, permissions: ['files.read'] };
  const { data } = await gateway.keys.createKey({ apiId, ...fields, credits: { remaining: 3 } });
  const { keyId, key } = data;
  const verify = async (more = {}) => (await gateway.keys.verifyKey({ key, ...more })).data;
  const { externalId, ...same } = fields;
  expect(await verify({ permissions: 'files.read AND files.read', credits: { cost: 2 } })).toEqual({
    ...{ valid: true, code: 'VALID', keyId, enabled: true, ...same, credits: 1 },
    identity: { id: expect.stringMatching(/^identity_/), externalId },
  });
  expect(await verify({ permissions: 'files.write' })).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
  expect(await verify({ credits: { cost: 2 } })).toMatchObject({ valid: false, code: 'USAGE_EXCEEDED' });
  expect(await verify({ ratelimits: [{ name: 'own', limit: 5, duration: 60_000 }] })).toMatchObject({
    ratelimits: [
      { id: `${keyId}.own`, name: 'own', limit: 5, remaining: 4, exceeded: false, autoApply: false },
    ],
  });
  await gateway.keys.updateKey({ keyId, enabled: false });
  expect(await verify()).toMatchObject({ valid: false, code: 'DISABLED', enabled: false, keyId });
  await gateway.keys.updateKey({ keyId, enabled: true, credits: null });
  expect(await verify({ tags: ['path=/files'] })).toMatchObject({ valid: true, code: 'VALID' });
  expect((await gateway.keys.verifyKey({ key: 'nobody' })).data).toEqual({ valid: false, code: 'NOT_FOUND' });
  expect(await refusal(gateway.keys.verifyKey({ key, permissions: 'a AND' }))).toMatchObject({
    status: 400,
    error: { errors: [{ location: 'body.permissions' }] },
  });
  expect(await refusal(admin.keys.verifyKey({ key }))).toMatchObject({
    status: 404,
    error: { detail: expect.stringContaining('verifier') },
  });
});

test('what belongs to a hosting product says so', async () => {
  expect(await refusal(admin.projects.listProjects({}))).toMatchObject({
    status: 404,
    error: { detail: expect.stringContaining('hosting product') },
  });
});
