import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  latestRefusalsKey,
  tagUsageKey,
  usageKey,
  watchedApis,
} from '../../../../shared/redis/redis-keys.ts';
import { type Answer, Fleet } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** A busy machine is to end neither a lease, after which a key in memory is counted anew, nor a look-up. */
const PATIENT = { LEASE_MS: '30000', LOOKUP_WAIT_MS: '5000' };

let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 2, env: { ...PATIENT, USAGE_PERIOD_MS: '50' } });
});
afterAll(() => fleet.stop());

interface Bucket {
  time: number;
  success: number;
  disabled: number;
  expired: number;
  forbidden: number;
}

const create = (input: object = {}): Promise<{ keyId: string; key: string }> =>
  fleet.ok('keys.createKey', { apiId: 'used', ...input });
const series = async (keyId: string, query: object = {}): Promise<Bucket[]> =>
  (await fleet.ok('keys.getVerifications', { keyId, ...query })).verifications;
const total = (buckets: readonly Bucket[], what: keyof Bucket) =>
  buckets.reduce((sum, bucket) => sum + bucket[what], 0);
const counted = async (keyId: string, what: keyof Bucket, count: number) => {
  await fleet.until(
    async () => total(await series(keyId), what) >= count,
    `${count} ${what} are not reported`,
  );
  expect(total(await series(keyId), what)).toBe(count);
};
/** Verifies so often, and only answers that were decided count. */
const verify = async (key: string, times: number, options: { apiId?: string; at?: number } = {}) => {
  await fleet.verdict(key, options);
  const rest = Array.from({ length: times - 1 }, (): Promise<Answer> => fleet.verify(key, options));
  for (const { status } of await Promise.all(rest)) expect(status).toBe(200);
};

describe('a query of usage', () => {
  const query = async (about: object) => (await fleet.ok('usage.query', about)).rows;

  test('adds up keys, APIs and identities', async () => {
    const apiId = 'queried';
    const mine = await create({ apiId, externalId: 'acme' });
    const other = await create({ apiId, externalId: 'acme', enabled: false });
    await verify(mine.key, 4);
    await verify(other.key, 3);
    await counted(mine.keyId, 'success', 4);
    await counted(other.keyId, 'disabled', 3);
    expect(await query({ apiId, code: 'VALID' })).toEqual([{ count: 4 }]);
    expect(await query({ keyId: mine.keyId, code: 'DISABLED' })).toEqual([{ count: 0 }]);
    await fleet.until(async () => (await query({ apiId }))[0].count === 7, 'the API is not reported');
    expect(await query({ apiId, groupBy: 'code,api' })).toEqual([
      { code: 'VALID', apiId, count: 4 },
      { code: 'DISABLED', apiId, count: 3 },
    ]);
    const rows = await query({ externalId: 'acme', groupBy: 'identity,key' });
    expect(rows).toEqual([
      { externalId: 'acme', keyId: mine.keyId, count: 4 },
      { externalId: 'acme', keyId: other.keyId, count: 3 },
    ]);
    const [{ time, ...rest }, ...none] = await query({ apiId, groupBy: 'time', granularity: 'hour' });
    expect([time % HOUR_MS, none.length === 0 ? rest : { count: 7 }]).toEqual([0, { count: 7 }]);
    expect(await query({ apiId, end: time - 1, granularity: 'hour' })).toEqual([{ count: 0 }]);
  });

  test('adds up an identity with more keys than one read takes', async () => {
    const of = { externalId: 'crowd' };
    const made = [];
    for (let i = 0; i < 450; i += 50)
      made.push(
        ...(await Promise.all(
          Array.from({ length: 50 }, (_, j) => create({ ...of, apiId: j === 0 ? 'queried' : 'crowds' })),
        )),
      );
    const [first, second, last] = [made[0], made[1], made.at(-1)];
    for (const each of [first, second, last]) await verify(each?.key ?? '', 2);
    await fleet.until(async () => (await query(of))[0].count === 6, 'the identity is not reported');
    expect(await query({ ...of, groupBy: 'identity,code' })).toEqual([
      { externalId: 'crowd', code: 'VALID', count: 6 },
    ]);
    expect(await query({ ...of, groupBy: 'api' })).toEqual([
      { apiId: 'crowds', count: 4 },
      { apiId: 'queried', count: 2 },
    ]);
    expect(await query({ ...of, start: 0, end: Date.now() - 3 * DAY_MS })).toEqual([{ count: 0 }]);
    const { status, body } = await fleet.admin('usage.query', { ...of, groupBy: 'key' });
    expect([status, body.error.message]).toEqual([400, expect.stringMatching(/^externalId: .*100 keys/)]);
  });

  test('names what it needs, and shows no other API', async () => {
    const refusal = async (about: object) => {
      const { status, body } = await fleet.admin('usage.query', about);
      return [status, body.error.message];
    };
    const { keyId } = await create({ apiId: 'secretly' });
    expect(await refusal({ groupBy: 'key' })).toEqual([400, expect.stringMatching(/^groupBy: .*keyId/)]);
    expect(await refusal({ groupBy: 'identity' })).toEqual([
      400,
      expect.stringMatching(/^groupBy: .*externalId/),
    ]);
    expect(await refusal({ groupBy: 'hour' })).toEqual([400, expect.stringMatching(/^groupBy/)]);
    expect(await refusal({ keyId, externalId: 'acme' })).toEqual([400, expect.stringMatching(/^externalId/)]);
    const { key: narrow } = await fleet.ok('rootKeys.createRootKey', {
      name: 'narrow',
      permissions: ['api.used.read_analytics'],
    });
    const as = { rootKey: narrow };
    expect((await fleet.admin('usage.query', { apiId: 'secretly' }, as)).status).toBe(404);
    expect((await fleet.admin('usage.query', { keyId }, as)).status).toBe(404);
    const { body } = await fleet.admin('usage.query', { groupBy: 'api' }, as);
    expect(body.rows.every(({ apiId }: { apiId: string }) => apiId === 'used')).toBe(true);
  });
});

describe('while somebody looks', () => {
  test('a refusal is seen within two seconds, of that API alone', async () => {
    const patient = await Fleet.start({ env: { ...PATIENT, USAGE_PERIOD_MS: '3600000' } });
    try {
      const make = (apiId: string) => patient.ok('keys.createKey', { apiId, enabled: false });
      const [seen, unseen] = [await make('seen'), await make('unseen')];
      const list = async () => (await patient.ok('apis.listRefusals', { apiId: 'seen' })).refusals;
      expect(await list()).toEqual([]);
      // The verifier has heard of the look when it has reported once.
      for (const { key } of [unseen, seen]) expect(await patient.verdict(key)).toBe('DISABLED');
      await patient.until(async () => (await list()).length === 1, 'the first refusal is not reported');
      const startedAtMs = performance.now();
      expect(await patient.verdict(seen.key)).toBe('DISABLED');
      await patient.until(async () => (await list()).length === 2, 'the refusal is not reported');
      expect(performance.now() - startedAtMs).toBeLessThan(2000);
      const counted = async () => (await patient.ok('usage.query', { keyId: seen.keyId })).rows[0].count;
      await patient.until(async () => (await counted()) === 2, 'the use is not reported');
      expect(await patient.client.exists(usageKey('unseen', unseen.keyId))).toBe(0);
      expect(await patient.client.exists(latestRefusalsKey('unseen'))).toBe(0);
    } finally {
      await patient.stop();
    }
  });

  test('at most ten APIs are watched, for ten seconds', async () => {
    const { key } = await create({ apiId: 'api-0' });
    expect(key).toBeDefined();
    for (let i = 1; i < 12; i++) await create({ apiId: `api-${i}` });
    await fleet.client.del(watchedApis);
    for (let i = 0; i < 12; i++) await fleet.ok('apis.listRefusals', { apiId: `api-${i}` });
    expect(await fleet.client.zcard(watchedApis)).toBe(10);
    const restMs = await fleet.client.pttl(watchedApis);
    expect(restMs).toBeGreaterThan(0);
    expect(restMs).toBeLessThanOrEqual(10_000);
    await fleet.client.zadd(watchedApis, Date.now() - 11_000, 'api-3');
    await fleet.ok('apis.listRefusals', { apiId: 'api-11' });
    const watched = await fleet.client.zrange(watchedApis, '0', '-1');
    expect([watched.includes('api-3'), watched.includes('api-11')]).toEqual([false, true]);
  });
});

describe('usage of a key', () => {
  test('counts each verification once, by its verdict', async () => {
    const { keyId, key } = await create();
    await Promise.all([verify(key, 30, { at: 0 }), verify(key, 12, { at: 1 })]);
    await verify(key, 5, { apiId: 'another' });
    await counted(keyId, 'success', 42);
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    await verify(key, 7);
    await fleet.ok('keys.updateKey', { keyId, enabled: true, expires: 100_000_000_000 });
    await verify(key, 3);
    await counted(keyId, 'disabled', 7);
    await counted(keyId, 'expired', 3);
    await counted(keyId, 'forbidden', 5);
    await counted(keyId, 'success', 42);
  });

  test('counts verifications that waited for the key', async () => {
    const { keyId, key } = await create();
    const answers = await Promise.all(Array.from({ length: 20 }, () => fleet.verify(key)));
    await counted(keyId, 'success', answers.filter(({ status }) => status === 200).length);
  });

  test('tells the last accept, and no refusal', async () => {
    const { keyId, key } = await create({ enabled: false });
    const before = Date.now();
    await verify(key, 1);
    await counted(keyId, 'disabled', 1);
    expect(await fleet.ok('keys.getKey', { keyId })).not.toHaveProperty('lastUsedAt');
    await fleet.ok('keys.updateKey', { keyId, enabled: true });
    await verify(key, 1);
    await counted(keyId, 'success', 1);
    const { lastUsedAt } = await fleet.ok('keys.getKey', { keyId });
    const { keys: listed } = await fleet.ok('apis.listKeys', { apiId: 'used' });
    expect(listed.find((key: { keyId: string }) => key.keyId === keyId)?.lastUsedAt).toBe(lastUsedAt);
    expect(lastUsedAt).toBeGreaterThanOrEqual(before);
    expect(lastUsedAt).toBeLessThanOrEqual(Date.now());
  });

  test('is nothing at first, and 404 without a key', async () => {
    const { keyId } = await create();
    expect(await fleet.ok('keys.getKey', { keyId })).not.toHaveProperty('lastUsedAt');
    expect(total(await series(keyId), 'success')).toBe(0);
    expect((await fleet.admin('keys.getVerifications', { keyId: 'key_none' })).status).toBe(404);
    await fleet.ok('keys.deleteKey', { keyId });
    expect((await fleet.admin('keys.getVerifications', { keyId })).status).toBe(404);
  });

  test('is shown to who may read keys of the API', async () => {
    const { keyId } = await create();
    const statusFor = async (...permissions: string[]) => {
      const { key } = await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions });
      return (await fleet.admin('keys.getVerifications', { keyId }, { rootKey: key })).status;
    };
    expect(await statusFor('api.used.read_key')).toBe(200);
    expect(await statusFor('api.used.create_key')).toBe(403);
    expect(await statusFor('api.other.read_key')).toBe(404);
  });
});

describe('a series', () => {
  test('has every hour of two days or day of a month', async () => {
    const { keyId, key } = await create();
    await verify(key, 4);
    await counted(keyId, 'success', 4);
    for (const [granularity, length, count] of [
      ['hour', HOUR_MS, 48],
      ['day', DAY_MS, 31],
    ] as const) {
      const buckets = await series(keyId, { granularity });
      const last = buckets.at(-1)?.time ?? 0;
      expect(buckets.map(({ time }) => time)).toEqual(
        Array.from({ length: count }, (_, i) => last - (count - 1 - i) * length),
      );
      expect(last % length).toBe(0);
      expect(Date.now() - last).toBeLessThan(length + 60_000);
      expect(total(buckets.slice(-2), 'success')).toBe(4);
    }
  });

  test('has every minute of an hour, of a whole API', async () => {
    const { keyId, key } = await create({ apiId: 'minutes' });
    await verify(key, 3);
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    await verify(key, 2);
    const query = { apiId: 'minutes', granularity: 'minute' };
    const buckets = async () => (await fleet.ok('apis.getVerifications', query)).verifications;
    await fleet.until(async () => total(await buckets(), 'disabled') === 2);
    const minutes = await buckets();
    expect(total(minutes.slice(-2), 'success')).toBe(3);
    const last = minutes.at(-1).time;
    expect(minutes.map(({ time }: Bucket) => time)).toEqual(
      Array.from({ length: 60 }, (_, i) => last - (59 - i) * 60_000),
    );
    expect((await fleet.admin('keys.getVerifications', { keyId, granularity: 'minute' })).status).toBe(400);
  });

  test('is of the time asked for, as far as kept', async () => {
    const { keyId } = await create();
    const now = Date.now();
    const times = async (start: number, end: number) =>
      (await series(keyId, { granularity: 'hour', start: String(start), end: String(end) })).map(
        ({ time }) => time,
      );
    const hour = now - (now % HOUR_MS) - 5 * HOUR_MS;
    expect(await times(hour + 1, hour + HOUR_MS)).toEqual([hour, hour + HOUR_MS]);
    expect(await times(hour, hour)).toEqual([hour]);
    expect(await times(hour, hour - HOUR_MS)).toEqual([]);
    expect(await times(now - 100 * DAY_MS, now - 90 * DAY_MS)).toEqual([]);
    expect((await times(0, now + 100 * DAY_MS)).length).toBeLessThanOrEqual(49);
  });

  test('ignores what is no number', async () => {
    const { keyId } = await create();
    const day = Math.floor(Date.now() / DAY_MS);
    await fleet.client.hset(usageKey('used', keyId), {
      [`d${day}V`]: 'many',
      [`d${day}D`]: '-4',
      t: '1e400',
    });
    expect(total(await series(keyId), 'success')).toBe(0);
    expect(total(await series(keyId), 'disabled')).toBe(0);
    expect(await fleet.ok('keys.getKey', { keyId })).not.toHaveProperty('lastUsedAt');
  });
});

test('drops old hours and days, and in time all', async () => {
  const { keyId, key } = await create();
  const [hour, day] = [Math.floor(Date.now() / HOUR_MS), Math.floor(Date.now() / DAY_MS)];
  const usage = usageKey('used', keyId);
  const kept = [`h${hour - 40}V`, `d${day - 25}V`];
  await fleet.client.hset(usage, {
    [kept[0] ?? '']: 1,
    [kept[1] ?? '']: 1,
    [`h${hour - 60}V`]: 1,
    [`d${day - 40}E`]: 1,
  });
  await verify(key, 1);
  await fleet.until(async () => (await fleet.client.hget(usage, 't')) !== null);
  const fields = await fleet.client.hkeys(usage);
  expect(fields).toEqual(expect.arrayContaining(kept));
  expect(fields).toHaveLength(5);
  const ttl = await fleet.client.pttl(usage);
  expect(ttl).toBeGreaterThan(31 * DAY_MS);
  expect(ttl).toBeLessThanOrEqual(32 * DAY_MS);
});

const CALLERS = 6;
test('reads the sums of many tags in parts', async () => {
  await fleet.ok('keys.createKey', { apiId: 'tagged' });
  const today = Math.floor(Date.now() / DAY_MS);
  const fill = `for day = ARGV[1] - 30, ARGV[1] do for i = 1, 1000 do
    redis.call('HSET', KEYS[1] .. day, '=' .. (i == 1000 and 'only ' .. day or 'tag ' .. i), i, i .. 'V', 1) end end`;
  await fleet.client.eval(fill, 1, tagUsageKey('tagged', ''), today);
  await fleet.client.config('RESETSTAT');
  const query = { apiId: 'tagged', groupBy: 'tag', limit: '1000' };
  const answers = await Promise.all(
    Array.from({ length: CALLERS }, () => fleet.admin('apis.getVerifications', query)),
  );
  for (const { status, body } of answers) {
    expect(status).toBe(200);
    expect(body.verifications).toHaveLength(1001);
    expect(body.verifications[0]).toMatchObject({ tag: 'tag 1', success: 31 });
    expect(body.verifications[1000]).toMatchObject({ other: true, success: 30 });
  }
  const calls = (command: string, stats: string) =>
    Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  const stats = await fleet.client.info('commandstats');
  expect(calls('hscan', stats)).toBeGreaterThanOrEqual(CALLERS * 31 * 2);
  // Others read hashes whole, but nobody these.
  expect(calls('hgetall', stats)).toBeLessThan(CALLERS * 31);
});

describe('a verifier', () => {
  test('reports what it counted before it stops', async () => {
    const verifier = await fleet.addVerifier({ ...PATIENT, USAGE_PERIOD_MS: '3600000' });
    const at = fleet.verifiers.length - 1;
    const { keyId, key } = await create();
    await verify(key, 6, { at });
    expect(await metric(verifier.adminAddress, 'keyfence_usage_keys')).toBe(1);
    expect(total(await series(keyId), 'success')).toBe(0);
    await verifier.stop();
    fleet.verifiers.splice(at, 1);
    expect(total(await series(keyId), 'success')).toBe(6);
  });

  test('drops counts of too many keys, never verdicts', async () => {
    const env = { ...PATIENT, USAGE_PERIOD_MS: '3600000', USAGE_KEYS_MAX: '2' };
    const verifier = await fleet.addVerifier(env);
    const at = fleet.verifiers.length - 1;
    for (let i = 0; i < 4; i++) await verify((await create()).key, 3, { at });
    expect(await metric(verifier.adminAddress, 'keyfence_usage_keys')).toBe(2);
    expect(await metric(verifier.adminAddress, 'keyfence_usage_dropped_total')).toBe(6);
  });

  test('that is told not to count writes nothing', async () => {
    const verifier = await fleet.addVerifier({ ...PATIENT, USAGE_PERIOD_MS: '0' });
    const at = fleet.verifiers.length - 1;
    const { keyId, key } = await create();
    await verify(key, 3, { at });
    await verifier.stop();
    fleet.verifiers.splice(at, 1);
    expect(await fleet.client.exists(usageKey('used', keyId))).toBe(0);
  });

  test('counts while Redis is away and reports later', async () => {
    const { keyId, key } = await create();
    await verify(key, 2);
    await counted(keyId, 'success', 2);
    const dropped = async () =>
      Promise.all(
        fleet.verifiers.map(({ adminAddress }) => metric(adminAddress, 'keyfence_usage_dropped_total')),
      ).then((counts) => counts.reduce((a, b) => a + b));
    const droppedBefore = await dropped();
    fleet.client.disconnect();
    await fleet.redis.stop();
    let given = 0;
    await fleet.until(async () => {
      if ((await fleet.verifyOnce(key)).status === 200) given++;
      return fleet.logged.some(
        (line) => line.includes('usage was not reported') && line.includes('"sent":false'),
      );
    });
    await fleet.startRedis();
    await fleet.until(async () => (await fleet.admin('keys.getKey', { keyId })).status === 200);
    // Those of a report that was on its way when Redis went are lost, or they might be counted twice.
    const lost = (await dropped()) - droppedBefore;
    expect(given).toBeGreaterThan(lost);
    await counted(keyId, 'success', 2 + given - lost);
  });
});
