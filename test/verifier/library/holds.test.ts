import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createClient } from '../../../verifier/library/client.ts';
import { createVerifier } from '../../../verifier/library/create-verifier.ts';
import { type KeyVerifier, VerifierError } from '../../../verifier/library/key-verifier.ts';
import { createTestVerifier } from '../../../verifier/library/test-verifier.ts';
import { Fleet } from '../../harness/fleet.ts';
import { eventually } from '../../harness/waiting.ts';

/** Holds in this process, through a sidecar, and without Redis. */
let fleet: Fleet;
const verifiers: Record<string, KeyVerifier> = {};

beforeAll(async () => {
  fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000' } });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'shop' });
  verifiers['createVerifier'] = createVerifier({ redis: fleet.redisUrl, lookupWaitMs: 5000 });
  verifiers['createClient'] = createClient({ url: fleet.verifiers[0]?.address ?? '', timeoutMs: 10_000 });
  verifiers['createTestVerifier'] = createTestVerifier();
  await Promise.all(Object.values(verifiers).map((verifier) => verifier.ready()));
});
afterAll(async () => {
  await Promise.all(Object.values(verifiers).map((verifier) => verifier.close()));
  await fleet.stop();
});

describe.each(['createVerifier', 'createClient', 'createTestVerifier'])('%s', (name) => {
  const verifier = () => verifiers[name] as KeyVerifier;
  const create = async (fields: {
    remaining?: number;
    enabled?: boolean;
    ratelimits?: object[];
  }): Promise<string> => {
    const { remaining, enabled } = fields;
    const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
    if (name !== 'createTestVerifier') return key;
    (verifier() as ReturnType<typeof createTestVerifier>).set(key, {
      ...(remaining !== undefined && { remaining }),
      state: enabled === false ? 'disabled' : 'valid',
    });
    return key;
  };

  test('charges what the work cost', async () => {
    const key = await create({ remaining: 100 });
    const held = await verifier().hold(key, { credits: 60, apiId: 'shop' });
    expect(held).toMatchObject({
      valid: true,
      code: 'VALID',
      remaining: 40,
      hold: { id: expect.stringMatching(/^hold_/) },
    });
    expect(await held.release(25)).toEqual({ charged: 25, remaining: 75 });
    expect(await held.release(60)).toEqual({ charged: 25, remaining: 75 });
    const more = await verifier().hold(key, { credits: 50 });
    expect(await more.release(80)).toEqual({ charged: 75, short: 5, remaining: 0 });
  });

  test('reserves and settles a rate limit', async () => {
    const key = await create({
      remaining: 100,
      ratelimits: [{ name: 'tokens', limit: 5000, duration: 60_000 }],
    });
    const held = await verifier().hold(key, { credits: 2, reserve: { tokens: 5000 } });
    expect(held.valid).toBe(true);
    expect(await held.release({ tokens: 1234 })).toMatchObject({
      ...{ charged: 2, remaining: 98 },
      ratelimits: [{ name: 'tokens', charged: 1234 }],
    });
    const other = await verifier().hold(key, { reserve: { tokens: 5 } });
    const { id = '' } = 'hold' in other ? (other.hold ?? {}) : {};
    await expect(verifier().release(id, { tokens: -1 })).rejects.toThrow(TypeError);
    expect(await other.release({ credits: 0, tokens: 0 })).toMatchObject({ charged: 0 });
  });

  test('takes what is there, and says how much', async () => {
    const ratelimits = [{ name: 'tokens', limit: 5000, duration: 60_000 }];
    const key = await create({ remaining: 100, ratelimits });
    const reserve = { tokens: { cost: 5000, atLeast: 500 } };
    const held = await verifier().hold(key, { credits: 150, atLeast: 20, reserve });
    const taken = { credits: 100, ratelimits: [{ name: 'tokens', cost: 5000 }] };
    expect(held).toMatchObject({ code: 'VALID', remaining: 0, hold: taken });
    expect(await held.release({ credits: 90, tokens: 1 })).toMatchObject({ charged: 90, remaining: 10 });
    expect(await verifier().hold(key, { credits: 150, atLeast: 20 })).toMatchObject({ valid: false });
  });

  test('await using releases what was reserved', async () => {
    const key = await create({ remaining: 100 });
    {
      await using held = await verifier().hold(key, { credits: 60 });
      expect(held.valid).toBe(true);
    }
    {
      await using held = await verifier().hold(key, { credits: 30 });
      void held.release(10);
    }
    expect(await verifier().verify(key, { remaining: { cost: 0 } })).toMatchObject({ remaining: 30 });
  });

  test('a refused key holds nothing', async () => {
    const key = await create({ enabled: false });
    await using held = await verifier().hold(key, { credits: 60 });
    expect(held).toMatchObject({ valid: false, code: 'DISABLED' });
    expect(held).not.toHaveProperty('hold');
    expect(await held.release(3)).toEqual({ charged: 0 });
    await using unknown = await verifier().hold('unknown');
    expect(unknown.code).toBe('NOT_FOUND');
  });

  test('a key without credits is charged nothing', async () => {
    await using held = await verifier().hold(await create({}), { credits: 60 });
    expect(await held.release(70)).toEqual({ charged: 0 });
    const needed = await verifier().verify(await create({}), { hold: { credits: 5, onlyIfNeeded: true } });
    expect(needed).toMatchObject({ code: 'VALID' });
    expect(needed).not.toHaveProperty('hold');
  });

  test('an unknown hold is an error with a code', async () => {
    const refusal = { constructor: VerifierError, code: 'HOLD_UNKNOWN' };
    await expect(verifier().release(`hold_other_${'a'.repeat(22)}`)).rejects.toMatchObject(refusal);
  });

  test('names every wrong option', async () => {
    const hold = (options: object) => verifier().hold('key', options);
    await expect(hold({ credits: -1 })).rejects.toThrow(/^hold.credits: must be a whole number from 0/);
    await expect(hold({ forMs: 999 })).rejects.toThrow('hold.forMs: must be a whole number from 1000 to');
    await expect(hold({ credit: 1 })).rejects.toThrow('credit: unknown option');
    await expect(hold({ hold: {} })).rejects.toThrow('hold: unknown option');
    await expect(hold({ credits: 1, remaining: { cost: 2 } })).rejects.toThrow('send one of them');
    await expect(verifier().hold('key', null as never)).rejects.toThrow(TypeError);
    await expect(verifier().release('hold')).rejects.toThrow(/^hold: must match/);
    const id = `hold_other_${'a'.repeat(22)}`;
    await expect(verifier().release(id, 1.5)).rejects.toThrow(/^cost: must be a whole number/);
  });
});

describe.each(['createVerifier', 'createClient'])('%s', (name) => {
  test('takes and frees places', async () => {
    const { key } = await fleet.ok('keys.createKey', {
      apiId: 'shop',
      concurrency: [{ name: 'jobs', limit: 1 }],
    });
    const verifier = verifiers[name] as KeyVerifier;
    {
      await using held = await verifier.hold(key);
      expect(held.code).toBe('VALID');
      expect((await verifier.hold(key)).code).toBe('CONCURRENCY_EXCEEDED');
      // A second question about the same request.
      const again = { ratelimits: [{ name: 'jobs', cost: 0 }], hold: { onlyIfNeeded: true } };
      expect((await verifier.verify(key, again)).code).toBe('VALID');
      await expect(verifier.verify(key, { ratelimits: [{ name: 'jobs' }] })).rejects.toThrow(TypeError);
    }
    await using held = await verifier.hold(key, { forMs: 1000 });
    expect(held.code).toBe('VALID');
    await eventually(async () => (await verifier.verify(key)).code === 'VALID');
    await expect(held.release()).rejects.toMatchObject({ code: 'HOLD_UNKNOWN' });
  });
});

test('a client ends a hold that begins too late', async () => {
  const isGivenUp = Promise.withResolvers<void>();
  const asked: { url: string | undefined; body: object }[] = [];
  const id = `hold_late_${'a'.repeat(22)}`;
  const server = createServer(async (request, response) => {
    const body = JSON.parse(Buffer.concat(await request.toArray()).toString());
    asked.push({ url: request.url, body });
    const verdict = { valid: true, code: 'VALID', keyId: 'key_1', apiId: 'shop', enabled: true, meta: {} };
    if (request.url?.endsWith('release')) return response.end(JSON.stringify({ charged: 0 }));
    await isGivenUp.promise;
    return response.end(JSON.stringify({ ...verdict, hold: { id, expiresAt: 0 } }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const client = createClient({ url: `http://127.0.0.1:${port}`, timeoutMs: 10 });
  try {
    await expect(client.hold('key', { credits: 5 })).rejects.toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
    isGivenUp.resolve();
    await eventually(() => asked.length === 2);
    expect(asked[0]?.body).toEqual({ key: 'key', hold: { credits: 5, forMs: 60_000 } });
    expect(asked[1]).toEqual({ url: '/v1/keys.release', body: { hold: id, cost: 0 } });
  } finally {
    await client.close();
    server.close();
  }
});

test('a verifier that is closed releases nothing', async () => {
  const verifier = createTestVerifier();
  await verifier.close();
  await expect(verifier.release(`hold_test_${'a'.repeat(22)}`)).rejects.toMatchObject({ code: 'CLOSED' });
});
