import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { poolKey } from '../../../../shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';

/** Three verifiers, and credits that must come out right whoever is asked. */
let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 3, env: { USAGE_PERIOD_MS: '100', LOOKUP_WAIT_MS: '5000' } });
});
afterAll(() => fleet.stop());

const create = (fields: object) => fleet.ok('keys.createKey', { apiId: 'shop', ...fields });

/** The verdict of one verifier, asked again while it cannot decide, which callers must bear. */
async function verify(at: number, key: string, remaining?: object) {
  const address = fleet.verifiers[at % fleet.verifiers.length]?.address;
  const asked = { key, ...(remaining ? { remaining } : {}) };
  let answer = await fleet.post(`${address}/v1/keys.verifyKey`, asked);
  await fleet.until(async () => {
    if (answer.status !== 503) return true;
    answer = await fleet.post(`${address}/v1/keys.verifyKey`, asked);
    return false;
  });
  return answer.body;
}

/** What verifiers answered to so many requests, so many of them at once. */
async function flood(key: string, requests: number, atOnce: number) {
  const counts: Record<string, number> = {};
  let next = 0;
  const ask = async () => {
    while (next < requests) {
      const { code } = await verify(next++, key);
      counts[code] = (counts[code] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, ask));
  return counts;
}

test('accepts exactly 1,000 of 5,000 requests', async () => {
  const { key, keyId } = await create({ remaining: 1000 });
  expect(await flood(key, 5000, 60)).toEqual({ VALID: 1000, USAGE_EXCEEDED: 4000 });
  expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ remaining: 0 });
});

describe('one verifier', () => {
  test('counts down and refuses what costs more', async () => {
    const { key } = await create({ remaining: 5 });
    expect(await verify(0, key)).toMatchObject({ code: 'VALID', remaining: 4 });
    expect(await verify(0, key, { cost: 3 })).toMatchObject({ code: 'VALID', remaining: 1 });
    expect(await verify(0, key, { cost: 2 })).toMatchObject({
      code: 'USAGE_EXCEEDED',
      valid: false,
      remaining: 1,
    });
    expect(await verify(0, key, { cost: 0 })).toMatchObject({ code: 'VALID', remaining: 1 });
    expect(await verify(0, key)).toMatchObject({ code: 'VALID', remaining: 0 });
    expect(await verify(0, key)).toMatchObject({ code: 'USAGE_EXCEEDED', remaining: 0 });
    expect(await verify(0, key, { cost: 0 })).toMatchObject({ code: 'VALID', remaining: 0 });
  });

  test('sees in a second what another one spent', async () => {
    const { key } = await create({ remaining: 10 });
    expect(await verify(0, key, { cost: 0 })).toMatchObject({ code: 'VALID', remaining: 10 });
    expect(await verify(1, key, { cost: 4 })).toMatchObject({ code: 'VALID', remaining: 6 });
    const spentAtMs = Date.now();
    // Asked often, as by a poll: each answer was the first one's before.
    await fleet.until(async () => (await verify(0, key, { cost: 0 })).remaining === 6);
    expect(Date.now() - spentAtMs).toBeLessThan(3000);
  });

  test('takes nothing for a request refused otherwise', async () => {
    const { key, keyId } = await create({ remaining: 2 });
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(await verify(0, key)).toMatchObject({ code: 'DISABLED' });
    await fleet.ok('keys.updateKey', { keyId, enabled: true });
    expect(await verify(0, key)).toMatchObject({ code: 'VALID', remaining: 1 });
  });

  test('tells callers of other APIs nothing', async () => {
    const { key } = await create({ remaining: 0 });
    const { body } = await fleet.verify(key, { apiId: 'other' });
    expect(body).toEqual({ valid: false, code: 'FORBIDDEN', requestId: expect.any(String) });
  });
});

describe('updateRemaining', () => {
  const update = (keyId: string, op: string, value: number | null) =>
    fleet.ok('keys.updateRemaining', { keyId, op, value });

  test('holds for every verifier once it answers', async () => {
    const { key, keyId } = await create({ remaining: 3 });
    for (let at = 0; at < 3; at++) expect((await verify(at, key)).code).toBe('VALID');
    for (let at = 0; at < 3; at++) expect((await verify(at, key)).code).toBe('USAGE_EXCEEDED');
    expect(await update(keyId, 'increment', 3)).toMatchObject({
      remaining: 3,
      propagation: { state: 'complete' },
    });
    for (let at = 0; at < 3; at++) expect((await verify(at, key)).code).toBe('VALID');
    expect(await update(keyId, 'set', 10)).toMatchObject({ remaining: 10 });
    expect(await verify(1, key)).toMatchObject({ code: 'VALID', remaining: 9 });
    expect(await update(keyId, 'decrement', 4)).toMatchObject({ remaining: 5 });
    expect(await update(keyId, 'decrement', 40)).toMatchObject({ remaining: 0 });
    for (let at = 0; at < 3; at++) expect((await verify(at, key)).code).toBe('USAGE_EXCEEDED');
    expect(await update(keyId, 'increment', 1)).toMatchObject({ remaining: 1 });
    expect(await verify(2, key)).toMatchObject({ code: 'VALID', remaining: 0 });
    expect(await update(keyId, 'set', null)).toMatchObject({ remaining: null });
    expect(await verify(2, key)).not.toHaveProperty('remaining');
    const refused = await fleet.admin('keys.updateRemaining', { keyId, op: 'increment', value: 1 });
    expect(refused).toMatchObject({
      status: 400,
      body: { error: { message: expect.stringMatching(/^remaining: /) } },
    });
  });

  test('makes a named change once', async () => {
    const { keyId } = await create({ remaining: 10 });
    const change = (operationId: string, op: string, value: number | null) =>
      fleet.admin('keys.updateRemaining', { keyId, op, value, operationId });
    const first = await change('first-operation-name', 'increment', 5);
    expect(first.body).toMatchObject({ remaining: 15, propagation: { state: 'complete' } });
    const again = await change('first-operation-name', 'increment', 5);
    expect(again.body).toMatchObject({ remaining: 15, propagation: { state: 'complete' } });
    expect(again.body.propagation.sequence).toBe(first.body.propagation.sequence);
    const other = await change('first-operation-name', 'increment', 6);
    expect(other).toMatchObject({
      ...{ status: 409, body: { error: { message: expect.stringMatching(/^operationId: /) } } },
    });
    expect((await change('second-operation-name', 'increment', 5)).body.remaining).toBe(20);
    // A `set` that comes once more does not undo what came after it.
    expect((await change('third-operation-name', 'set', 3)).body.remaining).toBe(3);
    expect((await change('fourth-operation-name', 'increment', 4)).body.remaining).toBe(7);
    await change('third-operation-name', 'set', 3);
    expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ remaining: 7 });
    expect((await change('fifth-operation-name', 'set', null)).body.remaining).toBeNull();
    expect((await change('first-operation-name', 'increment', 5)).body.remaining).toBe(15);
    expect(await fleet.ok('keys.getKey', { keyId })).not.toHaveProperty('remaining');
  });

  test('leaves no replaced pool behind', async () => {
    const { keyId } = await create({ apiId: 'replaced', remaining: 3 });
    const pools = () => fleet.client.keys(poolKey('replaced', '*'));
    const [first] = await pools();
    expect(first).toBeDefined();
    await update(keyId, 'set', 10);
    const [second, ...more] = await pools();
    expect(second).not.toBe(first);
    expect(more).toEqual([]);
    await update(keyId, 'set', null);
    expect(await pools()).toEqual([]);
  });

  test('so many names are remembered for so long', async () => {
    const { keyId } = await create({ remaining: 0 });
    const change = (n: number) =>
      fleet.ok('keys.updateRemaining', {
        keyId,
        op: 'increment',
        value: 1,
        operationId: `name-of-operation-${n}`,
      });
    for (let n = 1; n <= 40; n++) await change(n);
    const name = `kf:{shop}:ops:${keyId}`;
    expect(await fleet.client.hlen(name)).toBe(32);
    expect((await change(40)).remaining).toBe(40);
    const leftMs = await fleet.client.pttl(name);
    expect(leftMs).toBeGreaterThan(0);
    expect(leftMs).toBeLessThanOrEqual(3_600_000);
  });

  test('a decrement recalls what verifiers hold', async () => {
    const { key, keyId } = await create({ remaining: 100_000 });
    const { VALID = 0 } = await flood(key, 600, 20);
    expect(VALID).toBe(600);
    expect(await update(keyId, 'decrement', 99_390)).toMatchObject({ remaining: expect.any(Number) });
    expect(await flood(key, 60, 10)).toEqual({ VALID: 10, USAGE_EXCEEDED: 50 });
  });
});

describe('a refill that is due', () => {
  const used = async (fields: object) => {
    const made = await create({
      apiId: 'due',
      remaining: 1,
      refill: { interval: 'daily', amount: 100 },
      ...fields,
    });
    expect((await verify(0, made.key)).code).toBe('VALID');
    const pools = await fleet.client.keys(poolKey('due', '*'));
    const [pool = ''] = pools.filter((name) => !before.has(name));
    for (const name of pools) before.add(name);
    const now = Math.floor(Date.now() / 1000);
    await fleet.client.hset(pool, 't', now - 5);
    return { ...made, pool };
  };
  const before = new Set<string>();
  const nextOf = async () => {
    const pools = await fleet.client.keys(poolKey('due', '*'));
    const [pool = ''] = pools.filter((name) => !before.has(name));
    before.add(pool);
    return Number(await fleet.client.hget(pool, 't'));
  };

  test.each([
    ['updateRemaining', { op: 'set', value: 0 }],
    ['updateKey', { remaining: 0 }],
  ])('is not made after a %s that sets what remains', async (operation, change) => {
    const { key, keyId } = await used({});
    await fleet.ok(`keys.${operation}`, { keyId, ...change });
    for (let at = 0; at < 3; at++)
      expect(await verify(at, key)).toMatchObject({ code: 'USAGE_EXCEEDED', remaining: 0 });
    const { remaining, refill } = await fleet.ok('keys.getKey', { keyId });
    expect({ remaining, refill }).toEqual({
      remaining: 0,
      refill: { interval: 'daily', amount: 100, lastRefillAt: expect.any(Number) },
    });
    // The next one is.
    expect(await nextOf()).toBeGreaterThan(Date.now() / 1000);
  });

  test.each([
    ['updateRemaining', { op: 'increment', value: 7 }, 107],
    ['updateRemaining', { op: 'decrement', value: 7 }, 93],
    ['updateKey', { refill: { interval: 'daily', amount: 50 } }, 100],
    ['updateKey', { refill: null }, 100],
  ])('is made before %s %j', async (operation, change, remaining) => {
    const { key, keyId } = await used({});
    await fleet.ok(`keys.${operation}`, { keyId, ...change });
    expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ remaining });
    expect(await verify(1, key)).toMatchObject({ code: 'VALID', remaining: remaining - 1 });
  });

  test('counts once, whoever looks at the pool', async () => {
    const { key, keyId, pool } = await used({});
    expect(await fleet.ok('keys.getKey', { keyId })).toMatchObject({ remaining: 100 });
    expect(await flood(key, 150, 10)).toEqual({ VALID: 100, USAGE_EXCEEDED: 50 });
    // The clock of Redis jumped ahead and back: none until that day.
    await fleet.client.hset(pool, 't', Math.floor(Date.now() / 1000) + 30 * 86_400);
    await fleet.ok('keys.updateRemaining', { keyId, op: 'set', value: 0 });
    expect(await nextOf()).toBeGreaterThan(Date.now() / 1000 + 29 * 86_400);
    expect(await verify(2, key)).toMatchObject({ code: 'USAGE_EXCEEDED' });
  });
});

test('all that verifiers hold comes back', async () => {
  const { key, keyId } = await create({ remaining: 100_000 });
  await flood(key, 600, 20);
  await fleet.until(async () => {
    const { remaining, remainingHeld } = await fleet.ok('keys.getKey', { keyId });
    return remaining === 99_400 && remainingHeld === undefined;
  });
});

test('counts credits exactly when given without end', async () => {
  const { key, keyId } = await create({ apiId: 'endless', remaining: 1 });
  const [pool = ''] = await fleet.client.keys(poolKey('endless', '*'));
  await fleet.client.hset(pool, 'b', '10000000000000000');
  const change = (op: string, value: number) => fleet.ok('keys.updateRemaining', { keyId, op, value });
  const { remaining } = await change('increment', 1_000_000_000_000);
  expect(await verify(0, key)).toMatchObject({ code: 'VALID', remaining: remaining - 1 });
  expect((await change('decrement', 2)).remaining).toBe(remaining - 3);
});

test('usage counts refusals for want of credits', async () => {
  const { key, keyId } = await create({ remaining: 1 });
  for (let i = 0; i < 3; i++) await verify(0, key);
  await fleet.until(async () => {
    const { verifications } = await fleet.ok('keys.getVerifications', { keyId });
    return verifications.at(-1).success === 1 && verifications.at(-1).usageExceeded === 2;
  });
});

describe('refuses, naming the field,', () => {
  test.each([
    [{ remaining: -1 }, 'remaining'],
    [{ remaining: 1.5 }, 'remaining'],
    [{ remaining: '1' }, 'remaining'],
    [{ remaining: null }, 'remaining'],
    [{ refill: { interval: 'daily', amount: 1 } }, 'refill'],
    [{ remaining: 1, refill: { interval: 'hourly', amount: 1 } }, 'refill.interval'],
    [{ remaining: 1, refill: { interval: 'daily', amount: 0 } }, 'refill.amount'],
    [{ remaining: 1, refill: { interval: 'monthly', amount: 1, refillDay: 32 } }, 'refill.refillDay'],
    [{ remaining: 1, refill: { interval: 'daily', amount: 1, refillDay: 1 } }, 'refill.refillDay'],
    [{ remaining: 1, refill: { interval: 'daily', amount: 1, other: 1 } }, 'refill.other'],
  ])('createKey %j', async (fields, field) => {
    const { status, body } = await fleet.admin('keys.createKey', { apiId: 'shop', ...fields });
    expect({ status, message: body.error?.message }).toEqual({
      status: 400,
      message: expect.stringMatching(new RegExp(`^${field.replaceAll('.', '[./]')}`)),
    });
  });

  test.each([
    [{ remaining: 1 }, 'remaining: must be an object'],
    [{ remaining: { cost: -1 } }, 'remaining.cost'],
    [{ remaining: { cost: 0.5 } }, 'remaining.cost'],
    [{ remaining: { cost: '1' } }, 'remaining.cost'],
    [{ remaining: { costs: 1 } }, 'remaining.costs: unknown field'],
  ])('verifyKey %j', async (fields, start) => {
    const address = fleet.verifiers[0]?.address;
    const { status, body } = await fleet.post(`${address}/v1/keys.verifyKey`, { key: 'k', ...fields });
    expect({ status, message: body.error?.message }).toEqual({
      status: 400,
      message: expect.stringContaining(start),
    });
  });
});
