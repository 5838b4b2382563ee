import { randomUUID } from 'node:crypto';
import { Unkey } from 'unkey-api-2';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';

/** The client of today, unchanged: all of it speaks `/v2/`. */
let fleet: Fleet;
let admin: Unkey;

beforeAll(async () => {
  fleet = await Fleet.start({ env: { USAGE_PERIOD_MS: '100', LOOKUP_WAIT_MS: '5000' } });
  const serverURL = fleet.controlPlanes[0]?.address ?? '';
  admin = new Unkey({ rootKey: ROOT_KEY, serverURL, retryConfig: { strategy: 'none' } });
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
  test('are created, shown, changed and listed, with every field', async () => {
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

  test('are refused with what the client knows: status, detail, and the field with its rule', async () => {
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

test('what belongs to a hosting product says so', async () => {
  expect(await refusal(admin.projects.listProjects({}))).toMatchObject({
    status: 404,
    error: { detail: expect.stringContaining('hosting product') },
  });
});
