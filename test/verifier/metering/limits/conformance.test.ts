import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

/** Five verifiers, and rate limits that hold over all of them. */
let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 5, env: { USAGE_PERIOD_MS: '100', LOOKUP_WAIT_MS: '5000' } });
});
afterAll(() => fleet.stop());

const HOUR_MS = 3_600_000;
const create = (fields: object) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });

/** The verdict of one verifier, asked again while it cannot decide, which callers must bear. */
async function ask(at: number, key: string, fields: object = {}) {
  const address = fleet.verifiers[at % fleet.verifiers.length]?.address;
  const once = () => fleet.post(`${address}/v1/keys.verifyKey`, { key, ...fields });
  let answer = await once();
  await fleet.until(async () => {
    if (answer.status !== 503) return true;
    answer = await once();
    return false;
  });
  return answer;
}
const verify = async (at: number, key: string, fields: object = {}) => (await ask(at, key, fields)).body;

/**
 * The amount that must be granted of a limit, at twice the demand. A request that this machine was too busy to send cannot
 * have been granted: it stopped early, or sent less often than every `periodMs`, by more than timers are late.
 */
function demandedOf(moments: readonly number[], limit: number, windowMs: number, periodMs: number): number {
  const share = Math.min(1, (Math.max(...moments) % windowMs) / windowMs + periodMs / windowMs);
  const often = Math.min(1, moments.length / (windowMs / (1.1 * periodMs)));
  return Math.floor(limit * Math.min(share, often));
}

test.concurrent('100 in 10 s: 97 to 100 in every window', async () => {
  const [LIMIT, WINDOW_MS, PERIOD_MS] = [100, 10_000, 50];
  const windowOf = (ms: number) => Math.floor(ms / WINDOW_MS);
  const { key } = await create({ ratelimit: { limit: LIMIT, duration: WINDOW_MS } });
  // Windows are those of Redis' clock, which is this machine's.
  await pause(WINDOW_MS - (Date.now() % WINDOW_MS) + 5);
  const first = windowOf(Date.now());
  const asked: { atMs: number; window: number; code: string }[] = [];
  const open = new Set<Promise<void>>();
  for (let i = 0; windowOf(Date.now()) < first + 2; i++) {
    const atMs = Date.now();
    const one = verify(i, key).then(({ code, ratelimit }) => {
      asked.push({ atMs, code, window: Math.round(ratelimit.reset / WINDOW_MS) - 1 });
    });
    open.add(one);
    void one.finally(() => open.delete(one));
    await pause(PERIOD_MS);
  }
  await Promise.all(open);
  for (const window of [first, first + 1]) {
    const accepted = asked.filter((each) => each.code === 'VALID' && each.window === window).length;
    expect(accepted).toBeLessThanOrEqual(LIMIT);
    const moments = asked.filter(({ atMs }) => windowOf(atMs) === window).map(({ atMs }) => atMs);
    expect(accepted).toBeGreaterThanOrEqual(demandedOf(moments, LIMIT, WINDOW_MS, PERIOD_MS) - 3);
  }
  for (const { code } of asked) expect(['VALID', 'RATE_LIMITED']).toContain(code);
});

test.concurrent('a limit of no key: 97 to 100 in every window', async () => {
  const [LIMIT, WINDOW_MS, PERIOD_MS] = [100, 4000, 20];
  const windowOf = (ms: number) => Math.floor(ms / WINDOW_MS);
  const question = { namespace: 'sms', identifier: 'ada', limit: LIMIT, duration: WINDOW_MS };
  await pause(WINDOW_MS - (Date.now() % WINDOW_MS) + 5);
  const first = windowOf(Date.now());
  const answers: { atMs: number; window: number; success: boolean }[] = [];
  const open = new Set<Promise<void>>();
  for (let i = 0; windowOf(Date.now()) < first + 2; i++) {
    const atMs = Date.now();
    const address = fleet.verifiers[i % fleet.verifiers.length]?.address;
    const one = fleet.post(`${address}/v2/ratelimit.limit`, question).then(({ status, body }) => {
      if (status !== 200) return; // a refusal for the caller
      const { success, reset } = body.data;
      answers.push({ atMs, success, window: Math.round(reset / WINDOW_MS) - 1 });
    });
    open.add(one);
    void one.finally(() => open.delete(one));
    await pause(PERIOD_MS);
  }
  await Promise.all(open);
  for (const window of [first, first + 1]) {
    const accepted = answers.filter((each) => each.success && each.window === window).length;
    expect(accepted).toBeLessThanOrEqual(LIMIT);
    const moments = answers.filter(({ atMs }) => windowOf(atMs) === window).map(({ atMs }) => atMs);
    expect(accepted).toBeGreaterThanOrEqual(demandedOf(moments, LIMIT, WINDOW_MS, PERIOD_MS) - 3);
  }
  expect(answers.some(({ success }) => success)).toBe(true);
});

test('no number of concurrent requests gets more accepted than the limit', async () => {
  const { key } = await create({ ratelimit: { limit: 300, duration: 24 * HOUR_MS } });
  const codes: string[] = [];
  let next = 0;
  const client = async () => {
    while (next < 1500) codes.push((await verify(next++, key)).code);
  };
  await Promise.all(Array.from({ length: 50 }, client));
  expect(codes.filter((code) => code === 'VALID')).toHaveLength(300);
  expect(codes.filter((code) => code === 'RATE_LIMITED')).toHaveLength(1200);
});

describe('a limit', () => {
  test.each([true, false])('counts down and refuses the rest (async %s)', async (async) => {
    const { key } = await create({ ratelimit: { limit: 3, duration: HOUR_MS, async } });
    const first = await verify(0, key);
    expect(first).toMatchObject({ code: 'VALID', ratelimit: { limit: 3, remaining: 2 } });
    expect(first.ratelimit.reset).toBeGreaterThan(Date.now());
    expect(first.ratelimit.reset).toBeLessThanOrEqual(Date.now() + HOUR_MS);
    const dear = await verify(0, key, { ratelimits: [{ name: 'default', cost: 3 }] });
    expect(dear).toMatchObject({
      valid: false,
      code: 'RATE_LIMITED',
      ratelimit: { limit: 3, remaining: 2 },
    });
    expect(await verify(1, key, { ratelimits: [{ name: 'default', cost: 2 }] })).toMatchObject({
      code: 'VALID',
      ratelimits: [{ name: 'default', limit: 3, duration: HOUR_MS, remaining: 0, exceeded: false }],
    });
    for (let at = 0; at < 5; at++) {
      expect(await verify(at, key)).toMatchObject({
        code: 'RATE_LIMITED',
        ratelimits: [{ exceeded: true }],
      });
    }
    expect((await verify(0, key, { ratelimits: [{ name: 'default', cost: 0 }] })).code).toBe('VALID');
  });

  test('costs Redis nothing while it refuses', async () => {
    const { key } = await create({ ratelimit: { limit: 1, duration: 24 * HOUR_MS } });
    expect((await verify(0, key)).code).toBe('VALID');
    expect((await verify(0, key)).code).toBe('RATE_LIMITED');
    const exchanges = async () => {
      const hash = (await fleet.client.keys('kf:{shop}:w:*')).sort();
      return (await Promise.all(hash.map((name) => fleet.client.hgetall(name)))).map((each) =>
        JSON.stringify(each),
      );
    };
    const before = await exchanges();
    for (let i = 0; i < 200; i++) expect((await verify(0, key)).code).toBe('RATE_LIMITED');
    expect(await exchanges()).toEqual(before);
  });

  test('that refuses a key may say its credits', async () => {
    // Memory forgets what is left within a second.
    const refused = async () => {
      const { key } = await create({ remaining: 9, ratelimit: { limit: 1, duration: HOUR_MS } });
      await verify(0, key);
      const { code, remaining } = await verify(0, key, { remaining: { cost: 0 } });
      return [code, remaining];
    };
    await expect.poll(refused).toEqual(['RATE_LIMITED', 8]);
  });

  test('by name is obeyed beside the default one', async () => {
    const ratelimits = [{ name: 'tokens', limit: 100, duration: HOUR_MS }];
    const { key } = await create({ ratelimit: { limit: 2, duration: HOUR_MS }, ratelimits });
    const both = { ratelimits: [{ name: 'tokens', cost: 60 }] };
    expect(await verify(0, key, both)).toMatchObject({
      code: 'VALID',
      ratelimit: { limit: 2, remaining: 1 },
      ratelimits: [
        { name: 'default', remaining: 1 },
        { name: 'tokens', remaining: 40 },
      ],
    });
    expect(await verify(1, key, both)).toMatchObject({
      code: 'RATE_LIMITED',
      ratelimit: { limit: 100, remaining: 40 },
    });
    // Nothing was taken of the default one.
    expect(await verify(2, key)).toMatchObject({ code: 'VALID', ratelimit: { limit: 2, remaining: 0 } });
    expect(await verify(3, key, both)).toMatchObject({ code: 'RATE_LIMITED', ratelimit: { limit: 2 } });
  });

  test('with autoApply is obeyed once, named or not', async () => {
    const ratelimits = [
      { name: 'rare', limit: 9, duration: HOUR_MS },
      { name: 'tokens', limit: 10, duration: HOUR_MS, autoApply: true },
    ];
    const { key, keyId } = await create({ ratelimits });
    expect(await verify(0, key)).toMatchObject({
      code: 'VALID',
      ratelimits: [{ name: 'tokens', remaining: 9 }],
    });
    const named = await verify(1, key, { ratelimits: [{ name: 'tokens', cost: 6 }] });
    expect(named).toMatchObject({ code: 'VALID', ratelimits: [{ name: 'tokens', remaining: 3 }] });
    const codes = await Promise.all(Array.from({ length: 12 }, async (_, i) => (await verify(i, key)).code));
    expect(codes.filter((code) => code === 'VALID')).toHaveLength(3);
    expect(await verify(2, key)).toMatchObject({ code: 'RATE_LIMITED', ratelimit: { limit: 10 } });
    expect((await fleet.ok('keys.getKey', { keyId })).ratelimits).toMatchObject(ratelimits);
    const [rare, tokens] = ratelimits;
    await fleet.ok('keys.updateKey', { keyId, ratelimits: [rare, { ...tokens, autoApply: false }] });
    expect((await verify(3, key)).code).toBe('VALID');
  });

  test('of the request needs none at the key', async () => {
    const { key } = await create({});
    const own = { ratelimits: [{ name: 'mine', limit: 1, duration: HOUR_MS }] };
    expect(await verify(0, key, own)).toMatchObject({ code: 'VALID', ratelimit: { limit: 1, remaining: 0 } });
    expect((await verify(1, key, own)).code).toBe('RATE_LIMITED');
    expect(await verify(1, key)).toEqual({
      ...{ valid: true, code: 'VALID', keyId: expect.any(String), apiId: 'shop', enabled: true, meta: {} },
      requestId: expect.any(String),
    });
  });

  test('of requests are so many for a key', async () => {
    const [{ key }, { key: other }] = [await create({}), await create({})];
    const bring = (of: string, i: number) =>
      ask(i, of, { ratelimits: [{ name: `mine-${i}`, limit: 1, duration: HOUR_MS }] });
    for (let i = 0; i < 100; i++) expect((await bring(key, i)).body.code).toBe('VALID');
    expect(await bring(key, 100)).toMatchObject({
      status: 429,
      body: {
        error: { code: 'RATE_LIMITED', message: expect.stringContaining('too many different limits') },
      },
    });
    expect((await bring(key, 7)).body.code).toBe('RATE_LIMITED');
    expect((await bring(other, 100)).body.code).toBe('VALID');
    expect((await verify(0, key)).code).toBe('VALID');
  });

  test('that the key lacks is an error', async () => {
    const { key } = await create({ ratelimit: { limit: 1, duration: HOUR_MS } });
    const fields = { ratelimits: [{ name: 'nobody' }] };
    expect(await ask(0, key, fields)).toMatchObject({
      status: 400,
      body: {
        error: { message: 'ratelimits: neither the key nor its identity or roles have a limit named nobody' },
      },
    });
    expect(await verify(0, key, { ...fields, apiId: 'other' })).toEqual({
      ...{ valid: false, code: 'FORBIDDEN', requestId: expect.any(String) },
    });
    expect((await verify(0, key)).code).toBe('VALID');
  });
});

test('all obey a change once its call returns', async () => {
  const { key, keyId } = await create({ ratelimit: { limit: 1000, duration: 24 * HOUR_MS } });
  for (let at = 0; at < 100; at++) expect((await verify(at, key)).code).toBe('VALID');
  await fleet.ok('keys.updateKey', { keyId, ratelimit: { limit: 100, duration: 24 * HOUR_MS } });
  for (let at = 0; at < 5; at++) expect((await verify(at, key)).code).toBe('RATE_LIMITED');
  await fleet.ok('keys.updateKey', { keyId, ratelimit: { limit: 101, duration: 24 * HOUR_MS } });
  expect(await verify(0, key)).toMatchObject({ code: 'VALID', ratelimit: { limit: 101, remaining: 0 } });
  for (let at = 0; at < 5; at++) expect((await verify(at, key)).code).toBe('RATE_LIMITED');
  await fleet.ok('keys.updateKey', { keyId, ratelimit: null });
  for (let at = 0; at < 5; at++) expect(await verify(at, key)).not.toHaveProperty('ratelimit');
});

test('takes nothing unless the verdict is VALID', async () => {
  const { key, keyId } = await create({ remaining: 3, ratelimit: { limit: 2, duration: 24 * HOUR_MS } });
  expect(await verify(0, key, { remaining: { cost: 4 } })).toMatchObject({
    code: 'USAGE_EXCEEDED',
    remaining: 3,
  });
  expect(await verify(1, key)).toMatchObject({ code: 'VALID', remaining: 2, ratelimit: { remaining: 1 } });
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect((await verify(0, key)).code).toBe('DISABLED');
  await fleet.ok('keys.updateKey', { keyId, enabled: true });
  expect(await verify(2, key)).toMatchObject({ code: 'VALID', remaining: 1, ratelimit: { remaining: 0 } });
  for (let at = 0; at < 5; at++) expect((await verify(at, key)).code).toBe('RATE_LIMITED');
  await fleet.until(async () => (await fleet.ok('keys.getKey', { keyId })).remaining === 1);
});

test('a key shows its limits, and usage refusals', async () => {
  const ratelimit = { limit: 1, duration: HOUR_MS, async: false };
  const ratelimits = [{ name: 'tokens', limit: 20_000, duration: HOUR_MS, async: true }];
  const { key, keyId } = await create({ ratelimit, ratelimits });
  expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ ratelimit, ratelimits });
  for (let i = 0; i < 3; i++) await verify(0, key);
  await fleet.until(async () => {
    const { verifications } = await fleet.ok('keys.getVerifications', { keyId });
    return verifications.at(-1).success === 1 && verifications.at(-1).rateLimited === 2;
  });
});

describe('refuses, naming the field,', () => {
  const limit = { limit: 1, duration: 1000 };
  test.each([
    [{ ratelimit: { limit: 1 } }, 'ratelimit'],
    [{ ratelimit: { ...limit, limit: 0 } }, 'ratelimit.limit'],
    [{ ratelimit: { ...limit, duration: 999 } }, 'ratelimit.duration'],
    [{ ratelimit: { ...limit, async: 1 } }, 'ratelimit.async'],
    [{ ratelimit: { ...limit, type: 'fast' } }, 'ratelimit.type'],
    [{ ratelimit: { ...limit, refillRate: 1 } }, 'ratelimit.refillRate'],
    [{ ratelimit: null }, 'ratelimit'],
    [{ ratelimits: limit }, 'ratelimits'],
    [{ ratelimits: [limit] }, 'ratelimits'],
    [{ ratelimits: [{ ...limit, name: 'a b' }] }, 'ratelimits'],
    [{ ratelimits: [{ ...limit, name: 'default' }] }, 'ratelimits: must not name a limit default'],
    [{ ratelimits: [1, 2].map(() => ({ ...limit, name: 'a' })) }, 'ratelimits: must contain a only once'],
    [{ ratelimits: Array.from({ length: 9 }, (_, i) => ({ ...limit, name: `n${i}` })) }, 'ratelimits'],
  ])('createKey %j', async (fields, start) => {
    const { status, body } = await fleet.admin('keys.createKey', { apiId: 'shop', ...fields });
    expect({ status, message: body.error?.message.replaceAll('/', '.') }).toEqual({
      status: 400,
      message: expect.stringMatching(new RegExp(`^${start}`)),
    });
  });

  test.each([
    [{ ratelimits: 1 }, 'ratelimits: must be a list of at most 32'],
    [{ ratelimits: [1] }, 'ratelimits.0: must be an object'],
    [{ ratelimits: [{}] }, 'ratelimits.0.name: must match'],
    [{ ratelimits: [{ name: 'a', cost: -1 }] }, 'ratelimits.0.cost: must be a whole number'],
    [{ ratelimits: [{ name: 'a', limit: 1 }] }, 'ratelimits.0: limit and duration must be set together'],
    [{ ratelimits: [{ name: 'a', limit: 0, duration: 1000 }] }, 'ratelimits.0.limit: must be a whole number'],
    [{ ratelimits: [{ name: 'a', limit: 1, duration: 1 }] }, 'ratelimits.0.duration: must be a whole number'],
    [{ ratelimits: [{ name: 'a', costs: 1 }] }, 'ratelimits.0.costs: unknown field'],
    [{ ratelimits: [{ name: 'a' }, { name: 'a' }] }, 'ratelimits: must contain a only once'],
    [{ ratelimit: { cost: 1 } }, 'ratelimit: unknown field'],
  ])('verifyKey %j', async (fields, start) => {
    const { status, body } = await ask(0, 'k', fields);
    expect({ status, message: body.error?.message }).toEqual({
      status: 400,
      message: expect.stringContaining(start),
    });
  });
});
