import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { apiKeys, poolKey, recordKey } from '../../../../shared/redis/redis-keys.ts';
import { hashSecret } from '../../../../shared/rules/key-format.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { Process } from '../../../harness/processes.ts';

/** Keys that take the places of others, at three verifiers. */
let fleet: Fleet;
const API = 'shop';
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const OPERATION = 'operation-of-this-test';

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 3, env: { LOOKUP_WAIT_MS: '5000' } });
});
afterAll(() => fleet.stop());

const create = (fields: object = {}) => fleet.ok('keys.createKey', { apiId: API, ...fields });
const reroll = (keyId: string, expiration: number, more: object = {}) =>
  fleet.ok('keys.rerollKey', { keyId, expiration, ...more });
const look = (keyId: string) => fleet.ok('keys.getKey', { keyId });

/** What all verifiers say of a key. */
const codes = (key: string) =>
  Promise.all(fleet.verifiers.map(async (_, at) => (await fleet.verify(key, { at })).body.code));

async function conflict(keyId: string, expiration = HOUR_MS): Promise<string> {
  const { status, body } = await fleet.admin('keys.rerollKey', { keyId, expiration });
  expect({ status, code: body.error?.code }).toEqual({ status: 409, code: 'CONFLICT' });
  return body.error.message;
}

test('the new key has all of the old one', async () => {
  const meta = { plan: 'pro', note: 'x'.repeat(200) };
  const fields = { name: 'Ada', externalId: 'ada', meta, environment: 'live', expires: Date.now() + DAY_MS };
  const old = await create({ ...fields, prefix: 'sk_live', byteLength: 32 });
  expect(await codes(old.key)).toEqual(['VALID', 'VALID', 'VALID']);
  const { key, keyId, endsAt, propagation } = await reroll(old.keyId, HOUR_MS);
  expect(propagation.state).toBe('complete');
  expect(key).toMatch(/^sk_live_[0-9A-Za-z]+$/);
  expect(key).toHaveLength(old.key.length);
  expect(endsAt - Date.now()).toBeGreaterThan(HOUR_MS / 2);
  expect(endsAt - Date.now()).toBeLessThanOrEqual(HOUR_MS);
  expect(await look(keyId)).toMatchObject({ ...fields, rerolledFrom: old.keyId, start: key.slice(0, 12) });
  expect(await look(old.keyId)).toMatchObject({ ...fields, rerolledTo: keyId, expires: endsAt });
  for (const at of [0, 1, 2]) {
    expect((await fleet.verify(key, { at })).body).toMatchObject({ code: 'VALID', keyId, meta, name: 'Ada' });
    expect(await fleet.verdict(old.key, { at })).toBe('VALID');
  }
  const owned = await fleet.ok('apis.listKeys', { apiId: API, externalId: 'ada' });
  expect(owned.keys.map((each: { keyId: string }) => each.keyId)).toEqual([old.keyId, keyId]);
  const again = await reroll(keyId, 0);
  expect(again.key).toHaveLength(key.length);
});

test('no rotation gives more uses of a limit', async () => {
  const limit = { limit: 5, duration: DAY_MS };
  const ratelimits = [{ ...limit, name: 'reports', autoApply: true, async: false }];
  let { key, keyId } = await create({ ratelimit: limit, ratelimits });
  const mail = { name: 'mail', ...limit }; // which only questions define
  let accepted = 0;
  for (let rotations = 0; rotations < 4; rotations++) {
    const old = key;
    for (let use = 0; use < 2; use++) {
      const ask = { ratelimits: [mail], at: use };
      for (const secret of [old, key])
        if ((await fleet.verify(secret, ask)).body.code === 'VALID') accepted++;
    }
    ({ key, keyId } = await reroll(keyId, HOUR_MS));
    expect(await fleet.ok('keys.updateKey', { keyId, name: `after ${rotations}` })).toMatchObject({
      propagation: { state: 'complete' },
    });
  }
  expect(accepted).toBe(5);
  expect(await fleet.verdict(key, { at: 2 })).toBe('RATE_LIMITED');
  const { rules } = await fleet.ok('keys.explain', { keyId });
  const left = rules.filter(({ rule }: { rule: string }) => rule === 'ratelimit');
  expect(left.map(({ detail }: { detail: string }) => detail)).toEqual([
    expect.stringContaining(' 0 left'),
    expect.stringContaining(' 0 left'),
  ]);
});

describe('the old key', () => {
  test('is refused everywhere if given no time', async () => {
    const old = await create();
    expect(await codes(old.key)).toEqual(['VALID', 'VALID', 'VALID']);
    const { key, endsAt } = await reroll(old.keyId, 0);
    expect(await codes(old.key)).toEqual(['EXPIRED', 'EXPIRED', 'EXPIRED']);
    expect(endsAt).toBeUndefined();
    expect(await codes(key)).toEqual(['VALID', 'VALID', 'VALID']);
  });

  test('never lives longer than it would have', async () => {
    const expires = Date.now() + HOUR_MS;
    const old = await create({ expires });
    const { keyId, endsAt } = await reroll(old.keyId, DAY_MS);
    expect(endsAt).toBe(expires);
    expect((await look(old.keyId)).expires).toBe(expires);
    expect((await look(keyId)).expires).toBe(expires);
  });

  test('stays disabled, and so is its successor', async () => {
    const old = await create({ enabled: false });
    const { key } = await reroll(old.keyId, HOUR_MS);
    expect([await fleet.verdict(old.key), await fleet.verdict(key)]).toEqual(['DISABLED', 'DISABLED']);
  });

  test('is rerolled once while it has a successor', async () => {
    const old = await create();
    const { keyId } = await reroll(old.keyId, HOUR_MS);
    expect(await conflict(old.keyId)).toContain(`rerolled into ${keyId} already`);
    await fleet.ok('keys.deleteKey', { keyId });
    expect(await look(old.keyId)).not.toHaveProperty('rerolledTo');
    const { key } = await reroll(old.keyId, 0);
    expect([await fleet.verdict(old.key), await fleet.verdict(key)]).toEqual(['EXPIRED', 'VALID']);
    const ended = await create();
    await fleet.ok('keys.updateKey', { keyId: ended.keyId, expires: 100_000_000_000 });
    expect(await conflict(ended.keyId)).toContain('has ended');
    const deleted = await create();
    await fleet.ok('keys.deleteKey', { keyId: deleted.keyId });
    const { status } = await fleet.admin('keys.rerollKey', { keyId: deleted.keyId, expiration: 0 });
    expect(status).toBe(404);
    // What was offered to those was taken back.
    const [ids, index] = [await fleet.client.keys('kf:i:*'), await fleet.client.zcard(apiKeys(API).index)];
    expect(ids).toHaveLength(index);
  });

  test('may have been made elsewhere', async () => {
    await fleet.ok('apis.updateApi', { apiId: API, defaultPrefix: 'mine', defaultBytes: 32 });
    const sha256 = hashSecret('a key of theirs');
    const { results } = await fleet.ok('keys.importKeys', { apiId: API, keys: [{ sha256, name: 'Bob' }] });
    const { key, keyId } = await reroll(results[0].keyId, 0);
    // 32 random bytes and the checksum.
    expect(key).toMatch(/^mine_[0-9A-Za-z]{49}$/);
    expect(await look(keyId)).toMatchObject({ name: 'Bob' });
    expect(await codes(key)).toEqual(['VALID', 'VALID', 'VALID']);
    await fleet.ok('apis.updateApi', { apiId: API, defaultPrefix: null, defaultBytes: null });
  });
});

describe('credits', () => {
  /** The verdict of one verifier, which takes nothing where it cannot decide, and is asked again. */
  const spend = async (at: number, key: string) => (await fleet.verify(key, { at: at % 3 })).body;

  test('serve both keys: 1,000 of 3,000 requests', async () => {
    const old = await create({ remaining: 1000 });
    const keys = [old.key];
    const counts: Record<string, number> = {};
    let next = 0;
    const ask = async () => {
      while (next < 3000) {
        const n = next++;
        const { code } = await spend(n, keys[n % keys.length] ?? old.key);
        counts[code] = (counts[code] ?? 0) + 1;
        if (n === 300) keys.push((await reroll(old.keyId, HOUR_MS)).key);
      }
    };
    await Promise.all(Array.from({ length: 40 }, ask));
    expect(counts).toEqual({ VALID: 1000, USAGE_EXCEEDED: 2000 });
    expect(await look(old.keyId)).toMatchObject({ remaining: 0 });
  });

  test('come back at the next midnight', async () => {
    const { keyId } = await create({ remaining: 5, refill: { interval: 'daily', amount: 5 } });
    const pool = (await fleet.client.hget(recordKey(API, keyId), 'q')) ?? '';
    const dueMs = 1000 * Number(await fleet.client.hget(poolKey(API, pool), 't'));
    expect(dueMs % DAY_MS).toBe(0);
    expect(dueMs).toBeGreaterThan(Date.now());
    expect(dueMs).toBeLessThanOrEqual(Date.now() + DAY_MS);
  });

  test('are set and end for both by either', async () => {
    const old = await create({ remaining: 5, refill: { interval: 'daily', amount: 9 } });
    const { key, keyId } = await reroll(old.keyId, HOUR_MS);
    for (const at of [0, 1, 2]) expect((await spend(at, key)).code).toBe('VALID');
    const set = (of: string, value: number | null) =>
      fleet.ok('keys.updateRemaining', { keyId: of, op: 'set', value });
    for (const [of, value] of [
      [old.keyId, 2],
      [keyId, 4],
    ] as const) {
      expect(await set(of, value)).toMatchObject({ remaining: value, propagation: { state: 'complete' } });
      for (let n = 0; n < value; n++) expect((await spend(n, n % 2 ? key : old.key)).code).toBe('VALID');
      expect(await codes(key)).toEqual(Array(3).fill('USAGE_EXCEEDED'));
      expect(await codes(old.key)).toEqual(Array(3).fill('USAGE_EXCEEDED'));
      expect(await look(old.keyId)).toMatchObject({ remaining: 0, refill: { amount: 9 } });
    }
    await fleet.ok('keys.updateRemaining', { keyId: old.keyId, op: 'increment', value: 1 });
    expect(await spend(0, key)).toMatchObject({ code: 'VALID', remaining: 0 });
    await set(old.keyId, null);
    expect(await spend(1, key)).not.toHaveProperty('remaining');
    expect(await look(keyId)).not.toHaveProperty('remaining');
  });

  test('live as long as any key that draws on them', async () => {
    const poolOf = async (keyId: string) =>
      poolKey(API, (await fleet.client.hget(recordKey(API, keyId), 'q')) ?? '');
    for (const first of ['old', 'new']) {
      const old = await create({ remaining: 3 });
      const made = await reroll(old.keyId, HOUR_MS);
      const pool = await poolOf(old.keyId);
      const [gone, left] = first === 'old' ? [old, made] : [made, old];
      await fleet.ok('keys.deleteKey', { keyId: gone.keyId });
      expect(await spend(0, left.key)).toMatchObject({ code: 'VALID', remaining: 2 });
      expect(
        await fleet.ok('keys.updateRemaining', { keyId: left.keyId, op: 'set', value: 7 }),
      ).toMatchObject({ remaining: 7 });
      expect(await fleet.client.exists(pool)).toBe(0);
      const now = await poolOf(left.keyId);
      await fleet.ok('keys.deleteKey', { keyId: left.keyId });
      expect(await fleet.client.exists(now)).toBe(0);
    }
  });

  test('are shared by as many keys as fit a change', async () => {
    let { keyId } = await create({ remaining: 1 });
    const first = keyId;
    for (let n = 1; n < 100; n++) ({ keyId } = await reroll(keyId, HOUR_MS, { waitMs: 0 }));
    expect(await conflict(keyId)).toContain('shares its credits with 100 keys');
    await fleet.ok('keys.deleteKey', { keyId: first });
    await reroll(keyId, HOUR_MS);
  });

  test('are shared along a chain of rerolled keys', async () => {
    const first = await create({ remaining: 7 });
    let { keyId, key } = first;
    for (let n = 1; n <= 101; n++) ({ keyId, key } = await reroll(keyId, 0, { waitMs: 0 }));
    expect((await fleet.admin('keys.getKey', { keyId: first.keyId })).status).toBe(404);
    expect(await fleet.client.exists(`kf:i:${first.keyId}`)).toBe(0);
    expect(await spend(0, key)).toMatchObject({ code: 'VALID', remaining: 6 });
    expect(await fleet.ok('keys.updateRemaining', { keyId, op: 'set', value: 3 })).toMatchObject({
      remaining: 3,
    });
    expect(await spend(1, key)).toMatchObject({ code: 'VALID', remaining: 2 });
  });
});

describe('a call that is sent again', () => {
  test('replaces the unknown key, making no third', async () => {
    const old = await create({ name: 'Eve', remaining: 10, expires: Date.now() + DAY_MS });
    const lost = await reroll(old.keyId, 0, { operationId: OPERATION });
    expect(await codes(lost.key)).toEqual(['VALID', 'VALID', 'VALID']);
    const made = await reroll(old.keyId, 0, { operationId: OPERATION });
    expect(await codes(lost.key)).toEqual(Array(3).fill('NOT_FOUND'));
    expect(await codes(old.key)).toEqual(Array(3).fill('EXPIRED'));
    expect((await fleet.verify(made.key)).body).toMatchObject({ code: 'VALID', name: 'Eve', remaining: 6 });
    expect((await fleet.admin('keys.getKey', { keyId: lost.keyId })).status).toBe(404);
    const now = await look(made.keyId);
    expect(now).toMatchObject({ rerolledFrom: old.keyId });
    expect(now.expires).toBeGreaterThan(Date.now());
    expect((await look(old.keyId)).rerolledTo).toBe(made.keyId);
    expect(await fleet.client.exists(`kf:i:${lost.keyId}`)).toBe(0);
    await conflict(old.keyId, 0);
    const { status } = await fleet.admin('keys.rerollKey', {
      ...{ keyId: old.keyId, expiration: 0, operationId: 'another-operation-of-it' },
    });
    expect(status).toBe(409);
  });

  test('kills no successor that is in use', async () => {
    const named = (keyId: string, expiration: number) =>
      fleet.admin('keys.rerollKey', { keyId, expiration, operationId: OPERATION });
    const [aged, rerolled] = [await create(), await create()];
    const old = await reroll(aged.keyId, HOUR_MS, { operationId: OPERATION });
    await fleet.client.hset(recordKey(API, old.keyId), 'c', Date.now() - HOUR_MS - 1000);
    const next = await reroll(rerolled.keyId, HOUR_MS, { operationId: OPERATION });
    const last = await reroll(next.keyId, HOUR_MS);
    for (const { keyId } of [aged, rerolled]) {
      const { status, body } = await named(keyId, HOUR_MS);
      expect([status, body.error.message]).toEqual([409, expect.stringContaining('was rerolled into')]);
    }
    for (const { key } of [old, next, last]) expect(await fleet.verdict(key)).toBe('VALID');
  });

  test('with another time for the old key is refused', async () => {
    const old = await create();
    const made = await reroll(old.keyId, DAY_MS, { operationId: OPERATION });
    const again = { keyId: old.keyId, expiration: 0, operationId: OPERATION };
    const { status, body } = await fleet.admin('keys.rerollKey', again);
    expect([status, body.error.message]).toEqual([
      409,
      expect.stringMatching(/^operationId: was used for another/),
    ]);
    expect([await fleet.verdict(old.key), await fleet.verdict(made.key)]).toEqual(['VALID', 'VALID']);
  });

  test('leaves one new key after a kill', async () => {
    const verifier = new Process('verifier/main.ts', { REDIS_URL: fleet.redisUrl });
    const killed = new Process('control-plane/main.ts', {
      ...{ REDIS_URL: fleet.redisUrl, ROOT_KEY, LEASE_MS: '10000' },
    });
    try {
      await Promise.all([verifier.start(), killed.start()]);
      const old = await create({ remaining: 100 });
      await fleet.until(async () => {
        const { body } = await fleet.post(`${verifier.address}/v1/keys.verifyKey`, { key: old.key });
        return body.code === 'VALID';
      });
      // Holds the answer back until it is known to be dead.
      verifier.signal('SIGSTOP');
      const input = { keyId: old.keyId, expiration: 0, operationId: OPERATION };
      const call = fleet
        .post(`${killed.address}/v1/keys.rerollKey`, input, { authorization: `Bearer ${ROOT_KEY}` })
        .then(
          () => 'answered',
          () => 'lost',
        );
      await fleet.until(async () => (await look(old.keyId)).rerolledTo !== undefined);
      await killed.stop('SIGKILL');
      expect(await call).toBe('lost');
      verifier.signal('SIGCONT');
      const { key, propagation } = await reroll(old.keyId, 0, { operationId: OPERATION });
      expect(propagation.state).toBe('complete');
      expect(await codes(old.key)).toEqual(Array(3).fill('EXPIRED'));
      expect(await codes(key)).toEqual(Array(3).fill('VALID'));
      const { keys } = await fleet.ok('apis.listKeys', { apiId: API, sort: '-createdAt', limit: '2' });
      expect(keys.map(({ keyId }: { keyId: string }) => keyId)).toContain(old.keyId);
    } finally {
      verifier.signal('SIGCONT');
      await Promise.all([verifier.stop('SIGKILL'), killed.stop('SIGKILL')]);
    }
  });
});

test('the audit log has what became of both keys', async () => {
  const expires = Date.now() + DAY_MS;
  const old = await create({ expires });
  const { keyId, endsAt, propagation } = await reroll(old.keyId, HOUR_MS);
  const [of, made] = await Promise.all(
    [old.keyId, keyId].map(async (id) => (await fleet.ok('audit.listEvents', { keyId: id })).events[0]),
  );
  expect(of).toMatchObject({
    ...{ operation: 'keys.rerollKey', outcome: 'OK', sequence: propagation.sequence },
    ...{ before: { expires }, after: { expires: endsAt, rerolledTo: keyId } },
  });
  expect(made).toMatchObject({ on: { apiId: API, keyId }, after: { rerolledFrom: old.keyId } });
  expect(JSON.stringify([of, made])).not.toContain(hashSecret(old.key));
});
