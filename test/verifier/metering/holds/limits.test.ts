import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';

/** Holds that reserve parts of rate limits, at two verifiers. */
let fleet: Fleet;
let redis: Redis;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env: { USAGE_PERIOD_MS: '100', LOOKUP_WAIT_MS: '5000' } });
  redis = new Redis(fleet.redisUrl);
});
afterAll(async () => {
  redis.disconnect();
  await fleet.stop();
});

const DAY_MS = 86_400_000;
const TOKENS = { name: 'tokens', limit: 10_000, duration: DAY_MS };
const create = (fields: object = { ratelimits: [TOKENS] }) =>
  fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
const at = (i: number, path: string, body: object) =>
  fleet.decided(() => fleet.post(`${fleet.verifiers[i]?.address}/v1/${path}`, body));
const ask = async (i: number, key: string, cost: number) =>
  (await at(i, 'keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost }] })).body;
const hold = async (i: number, key: string, cost: number, fields: object = {}) =>
  (await at(i, 'keys.verifyKey', { key, hold: { ratelimits: [{ name: 'tokens', cost }], ...fields } })).body;
const release = (i: number, { hold }: { hold: { id: string } }, fields: object = {}) =>
  at(i, 'keys.release', { hold: hold.id, ...fields });
const answerOf = async (...args: Parameters<typeof release>) => {
  const { requestId: _, ...body } = (await release(...args)).body;
  return body;
};

test('what the work did not need can be taken anywhere', async () => {
  const { key } = await create();
  const held = await hold(0, key, 8000);
  expect(held).toMatchObject({ code: 'VALID', ratelimits: [{ name: 'tokens', remaining: 2000 }] });
  expect((await ask(1, key, 9000)).code).toBe('RATE_LIMITED');
  expect(await answerOf(0, held, { costs: { tokens: 1234 } })).toEqual({
    charged: 0,
    ratelimits: [{ name: 'tokens', charged: 1234, remaining: 8766 }],
  });
  // Not only in the next window.
  await fleet.until(async () => (await ask(1, key, 8766)).code === 'VALID');
  expect((await ask(0, key, 1)).code).toBe('RATE_LIMITED');
});

test('without its cost, a limit is charged what was reserved', async () => {
  const { key } = await create({ ratelimits: [TOKENS], remaining: 100 });
  const held = await hold(0, key, 8000, { credits: 50 });
  expect(await answerOf(0, held, { cost: 20 })).toEqual({
    ...{ charged: 20, remaining: 80 },
    ratelimits: [{ name: 'tokens', charged: 8000, remaining: 2000 }],
  });
});

test('one release settles credits and limits', async () => {
  const { key } = await create({ ratelimits: [TOKENS], remaining: 100 });
  const held = await hold(0, key, 8000, { credits: 50 });
  const costs = { credits: 120, tokens: 12_000 };
  expect(await answerOf(0, held, { costs })).toEqual({
    ...{ charged: 100, short: 20, remaining: 0 },
    ratelimits: [{ name: 'tokens', charged: 10_000, short: 2000, remaining: 0 }],
  });
  expect((await release(0, held, { costs })).body).toMatchObject({ charged: 100, short: 20 });
});

test('a quota, a plan and a customer settle alike', async () => {
  const quota = { name: 'tokens', limit: 10_000, interval: 'month', autoApply: true };
  await fleet.ok('permissions.createRole', { name: 'pro', ratelimits: [{ ...quota, per: 'identity' }] });
  await fleet.ok('identities.createIdentity', { externalId: 'wayne', ratelimits: [quota] });
  const keys = [
    await create({ ratelimits: [quota] }),
    await create({ roles: ['pro'] }),
    await create({ externalId: 'wayne' }),
  ];
  for (const { key } of keys) {
    const ratelimits = [{ name: 'tokens', cost: 20_000, atLeast: 10_000 }];
    const held = await hold(0, key, 0, { ratelimits });
    expect(held.hold).toMatchObject({ ratelimits: [{ cost: 10_000 }] });
    const settled = { charged: 1, remaining: 9999 };
    expect((await answerOf(0, held, { costs: { tokens: 1 } })).ratelimits).toMatchObject([settled]);
  }
});

test('a hold takes what is there of each', async () => {
  const { key } = await create({ ratelimits: [TOKENS], remaining: 100 });
  await hold(0, key, 8000, { credits: 90 });
  const ratelimits = [{ name: 'tokens', cost: 5000, atLeast: 1000 }];
  const held = await hold(1, key, 5000, { credits: 50, atLeast: 5, ratelimits });
  expect(held).toMatchObject({ code: 'VALID', remaining: 0, ratelimits: [{ remaining: 0 }] });
  expect(held.hold).toEqual({
    ...{ id: expect.any(String), expiresAt: expect.any(Number) },
    ...{ credits: 10, ratelimits: [{ name: 'tokens', cost: 2000 }] },
  });
  // The rest of its settlement is by what it took.
  expect(await answerOf(1, held, { costs: { tokens: 3000 } })).toEqual({
    ...{ charged: 10, remaining: 0 },
    ratelimits: [{ name: 'tokens', charged: 2000, short: 1000, remaining: 0 }],
  });
});

test('a hold that waits settles once', async () => {
  const { key, keyId } = await create({ ratelimits: [TOKENS], remaining: 1000 });
  const ratelimits = [{ name: 'tokens', cost: 9000, atLeast: 1 }];
  const asked = Array.from({ length: 20 }, (_, i) =>
    hold(i % 2, key, 0, { credits: 900, atLeast: 1, ratelimits }),
  );
  const answers = await Promise.all(asked);
  const taken = answers.flatMap(({ hold }) => (hold ? [hold] : []));
  const sum = (amounts: number[]) => amounts.reduce((all, each) => all + each, 0);
  const credits = sum(taken.map(({ credits }) => credits));
  const tokens = sum(taken.map(({ ratelimits: [{ cost }] }) => cost));
  expect([credits <= 1000, tokens <= 10_000, Math.min(...taken.map(({ credits }) => credits)) > 0]).toEqual([
    ...[true, true, true],
  ]);
  expect(answers.filter(({ code }) => code === 'VALID')).toHaveLength(taken.length);
  await fleet.until(async () => (await fleet.ok('keys.getKey', { keyId })).remaining === 1000 - credits);
});

test('less than its least is refused, and takes nothing', async () => {
  const { key } = await create({ ratelimits: [TOKENS], remaining: 100 });
  await hold(0, key, 8000);
  const ratelimits = [{ name: 'tokens', cost: 5000, atLeast: 2001 }];
  const refused = await hold(1, key, 5000, { credits: 500, atLeast: 1, ratelimits });
  expect(refused).toMatchObject({ code: 'RATE_LIMITED', ratelimits: [{ remaining: 2000, exceeded: true }] });
  expect(refused).not.toHaveProperty('hold');
  expect((await hold(1, key, 2000, { credits: 99 })).code).toBe('VALID');
});

test('what is over comes back to no window', async () => {
  const { key } = await create({ ratelimits: [{ ...TOKENS, duration: 1000 }] });
  const held = await hold(0, key, 10_000);
  expect(held.code).toBe('VALID');
  await fleet.until(() => Date.now() >= held.ratelimits[0].reset + 20);
  expect((await answerOf(0, held, { costs: { tokens: 4000 } })).ratelimits).toEqual([
    { name: 'tokens', charged: 4000, lost: 6000 },
  ]);
});

test('what cost more is taken by the limit in force', async () => {
  const { key, keyId } = await create();
  const held = await hold(0, key, 1000);
  const ratelimits = [{ ...TOKENS, limit: 3000 }];
  expect(await fleet.ok('keys.updateKey', { keyId, ratelimits })).toMatchObject({
    propagation: { state: 'complete' },
  });
  expect((await answerOf(0, held, { costs: { tokens: 9000 } })).ratelimits).toEqual([
    { name: 'tokens', charged: 3000, short: 6000, remaining: 0 },
  ]);
});

test('a refusal is forgotten when work may give back', async () => {
  const { key } = await create();
  const [held] = [await hold(0, key, 9000), await ask(0, key, 1)];
  await fleet.until(async () => (await ask(1, key, 2000)).code === 'RATE_LIMITED');
  await release(0, held, { costs: { tokens: 0 } });
  const since = Date.now();
  await fleet.until(async () => (await ask(1, key, 9000)).code === 'VALID');
  expect(Date.now() - since).toBeLessThan(5000);
});

test('what is reserved passes no threshold', async () => {
  const quota = { name: 'tokens', limit: 10_000, interval: 'month', thresholds: [80] };
  const { key } = await create({ ratelimits: [quota] });
  const held = await hold(0, key, 9000);
  await release(0, held, { costs: { tokens: 7000 } });
  const told = async () => {
    const noted = await Promise.all((await redis.keys('kf:*u:!x')).map((name) => redis.hkeys(name)));
    return noted.flat().filter((field) => field.endsWith(' 80')).length;
  };
  await fleet.until(async () => (await ask(1, key, 0)).ratelimits[0].remaining === 3000);
  expect(await told()).toBe(0);
  expect((await ask(1, key, 1500)).code).toBe('VALID');
  await fleet.until(async () => {
    await ask(1, key, 0);
    return (await told()) === 1;
  });
});

describe('what a hold refuses', () => {
  test.each([
    [{ hold: { ratelimits: [{ name: 'calls', cost: 1 }] } }, /have a limit named calls/],
    [{ hold: { ratelimits: [{ name: 'credits', cost: 1 }] } }, /limit of the name credits cannot be held/],
    [{ hold: { ratelimits: [{ name: 'tokens' }] } }, /hold\.ratelimits\.0\.cost: required/],
    [{ hold: { atLeast: 1 } }, /hold\.atLeast: needs hold\.credits/],
    [{ hold: { credits: 1, atLeast: 2 } }, /hold\.atLeast: must be at most hold\.credits, 1/],
    [{ hold: { credits: 1, atLeast: 0 } }, /hold\.atLeast: must be a whole number from 1/],
    [
      { hold: { ratelimits: [{ name: 'tokens', cost: 1, atLeast: 2 }] } },
      /hold\.ratelimits\.0\.atLeast: must be at most cost, 1/,
    ],
    [
      { hold: { ratelimits: [{ name: 'tokens', cost: 1 }] }, ratelimits: [{ name: 'tokens' }] },
      /hold\.ratelimits: takes the place of ratelimits; name tokens in one/,
    ],
  ])('%o', async (fields, message) => {
    const { key } = await create();
    const { status, body } = await at(0, 'keys.verifyKey', { key, ...fields });
    expect([status, body.error.message]).toEqual([400, expect.stringMatching(message)]);
  });

  test.each([
    [{ costs: { tokenz: 1 } }, /costs\.tokenz: the hold reserves nothing .* but of tokens/],
    [{ costs: { tokens: -1 } }, /costs\.tokens: must be a whole number/],
    [{ cost: 1, costs: { credits: 1 } }, /cost: means the same as costs\.credits/],
  ])('%o', async (fields, message) => {
    const { key } = await create();
    const held = await hold(0, key, 5);
    const { status, body } = await release(0, held, fields);
    expect([status, body.error.message]).toEqual([400, expect.stringMatching(message)]);
    // The hold goes on.
    expect((await release(0, held, { costs: { tokens: 2 } })).body.ratelimits).toMatchObject([
      { charged: 2 },
    ]);
  });

  test('a limit that the key lacks, unless only if needed', async () => {
    const { key } = await create({});
    expect(await hold(0, key, 5, { onlyIfNeeded: true })).toMatchObject({ code: 'VALID' });
    expect(await hold(0, key, 5, { onlyIfNeeded: true })).not.toHaveProperty('hold');
  });
});
