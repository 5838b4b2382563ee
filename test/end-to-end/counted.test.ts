import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Answer, Fleet } from '../harness/fleet.ts';

/** A busy machine is to end neither a lease nor a look-up; whoever waits for a report asks again. */
const ENV = { LEASE_MS: '30000', LOOKUP_WAIT_MS: '5000', USAGE_PERIOD_MS: '50' };

let fleet: Fleet;
let redis: Redis;
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 3, env: ENV });
  redis = new Redis(fleet.redisUrl);
});
afterAll(async () => {
  redis.disconnect();
  await fleet.stop();
});

interface Row {
  readonly tag?: string;
  readonly other?: true;
  readonly success: number;
  readonly disabled: number;
  readonly expired: number;
  readonly forbidden: number;
}

const ask = (at: number, body: object): Promise<Answer> =>
  fleet.post(`${fleet.verifiers[at]?.address}/v1/keys.verifyKey`, body);
const verifications = async (operation: string, query: object): Promise<Row[]> =>
  (await fleet.ok(operation, query)).verifications;
const FIELDS = {
  VALID: 'success',
  DISABLED: 'disabled',
  EXPIRED: 'expired',
  FORBIDDEN: 'forbidden',
} as const;
type Counts = Record<string, number>;
const sumOf = (rows: readonly Row[]): Counts =>
  Object.fromEntries(
    Object.entries(FIELDS).map(([code, field]) => [code, rows.reduce((sum, row) => sum + row[field], 0)]),
  );
const none = (): Counts => Object.fromEntries(Object.keys(FIELDS).map((code) => [code, 0]));
const bump = (counts: Map<string, Counts>, name: string, code: string) => {
  const sum = counts.get(name) ?? none();
  sum[code] = (sum[code] ?? 0) + 1;
  counts.set(name, sum);
};

/** Answers that were given, counted by whoever got them. */
class Given {
  readonly byKey = new Map<string, Counts>();
  readonly byApi = new Map<string, Counts>();
  readonly byTag = new Map<string, Counts>();

  add(key: { keyId: string; apiId: string }, tags: readonly string[], { status, body }: Answer): void {
    if (status === 503) return; // nothing was decided
    expect(status).toBe(200);
    bump(this.byKey, key.keyId, body.code);
    bump(this.byApi, key.apiId, body.code);
    for (const tag of new Set(tags)) bump(this.byTag, tag, body.code);
  }

  async isReported(): Promise<void> {
    for (const [keyId, counts] of this.byKey) {
      await reaches(() => verifications('keys.getVerifications', { keyId }), counts);
    }
    for (const [apiId, counts] of this.byApi)
      await reaches(() => verifications('apis.getVerifications', { apiId }), counts);
  }
}

/** Waits until as much is reported as was given, and then it is exactly that. */
async function reaches(look: () => Promise<Row[]>, counts: Counts): Promise<void> {
  const all = (sum: Counts) => Object.values(sum).reduce((a, b) => a + b, 0);
  await fleet.until(async () => all(sumOf(await look())) >= all(counts), JSON.stringify(counts));
  expect(sumOf(await look())).toEqual(counts);
}

const TAGS = [[], ['a'], ['b', 'a'], ['a', 'a'], ['🦊', 'other'], ['__proto__']] as const;

describe('what verifiers answered', () => {
  test('is counted by verdict over all verifiers', async () => {
    const given = new Given();
    const keys = await Promise.all(
      Object.entries({
        good: {},
        off: { enabled: false },
        old: {},
      }).map(async ([name, input]) => ({
        apiId: 'counted',
        ...(await fleet.ok('keys.createKey', { apiId: 'counted', name, ...input })),
      })),
    );
    await fleet.ok('keys.updateKey', { keyId: keys[2]?.keyId, expires: 100_000_000_000 });
    const stopping = await fleet.addVerifier({ ...ENV, USAGE_PERIOD_MS: '3600000' });
    const at = fleet.verifiers.length - 1;
    const work = Array.from({ length: 120 }, async (_, i) => {
      const key = keys[i % keys.length] ?? keys[0];
      const tags = TAGS[i % TAGS.length] ?? [];
      const apiId = i % 8 === 0 ? { apiId: 'another' } : {};
      given.add(key, tags, await ask(i % (at + 1), { key: key.key, tags, ...apiId }));
    });
    await Promise.all(work);
    await stopping.stop();
    fleet.verifiers.splice(at, 1);
    await given.isReported();
    for (const [tag, counts] of given.byTag)
      await reaches(() => verifications('apis.getVerifications', { apiId: 'counted', tag }), counts);
    const rows = await verifications('apis.getVerifications', { apiId: 'counted', groupBy: 'tag' });
    expect(new Map(rows.map((row) => [row.tag, sumOf([row])]))).toEqual(given.byTag);
  });

  test('is counted once despite cut connections', async () => {
    const given = new Given();
    const made = await fleet.ok('keys.createKey', { apiId: 'cut', name: 'n' });
    const key = { apiId: 'cut', ...made };
    for (const at of [0, 1, 2]) await fleet.verdict(made.key, { at });
    for (const code of ['VALID', 'VALID', 'VALID']) bump(given.byKey, key.keyId, code);
    for (const code of ['VALID', 'VALID', 'VALID']) bump(given.byApi, key.apiId, code);
    for (let i = 0; i < 120; i++) {
      given.add(key, ['t'], await ask(i % 3, { key: made.key, tags: ['t'] }));
      if (i % 10 === 0) await redis.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    }
    await given.isReported();
    const counts = given.byTag.get('t') ?? none();
    await reaches(() => verifications('apis.getVerifications', { apiId: 'cut', tag: 't' }), counts);
  });
});

describe('tags', () => {
  test('beyond 1,000 a day are counted as others', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'many' });
    for (const at of [0, 1]) await fleet.verdict(key, { at });
    const tags = Array.from({ length: 1001 }, (_, i) => `tag ${i}`);
    const calls = Array.from({ length: 101 }, (_, i) => tags.slice(10 * i, 10 * i + 10));
    for (const [i, some] of calls.entries()) expect((await ask(i % 2, { key, tags: some })).status).toBe(200);
    const grouped = () => verifications('apis.getVerifications', { apiId: 'many', groupBy: 'tag' });
    await reaches(grouped, { ...none(), VALID: 1001 });
    const rows = await grouped();
    expect(rows).toHaveLength(1001);
    expect(new Set(rows.slice(0, -1).map(({ tag }) => tag)).size).toBe(1000);
    expect(rows.at(-1)).toMatchObject({ other: true, success: 1 });
    expect(rows.at(-1)).not.toHaveProperty('tag');
    const few = await verifications('apis.getVerifications', { apiId: 'many', groupBy: 'tag', limit: '2' });
    expect(few).toHaveLength(3);
    expect(few.at(-1)).toMatchObject({ other: true, success: 999 });
  });

  test('may be long and in the longest characters', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'long' });
    await fleet.verdict(key);
    const tags = Array.from({ length: 10 }, (_, i) => `${i}${'🦊'.repeat(127)}`);
    expect((await ask(0, { key, tags })).status).toBe(200);
    await reaches(() => verifications('apis.getVerifications', { apiId: 'long', groupBy: 'tag' }), {
      ...none(),
      VALID: 10,
    });
    const [tag = ''] = tags;
    const day = await verifications('apis.getVerifications', { apiId: 'long', tag });
    expect(sumOf(day)).toEqual({ ...none(), VALID: 1 });
  });

  test.each([
    ['a', 'tags: must be a list of at most 10'],
    [null, 'tags: must be a list of at most 10'],
    [{ length: 1 }, 'tags: must be a list of at most 10'],
    [Array.from({ length: 11 }, String), 'tags: must be a list of at most 10'],
    [['a', 7], 'tags: must be strings'],
    [[['a']], 'tags: must be strings'],
    [[''], 'tags: must have 1 to 128 characters each'],
    [['x'.repeat(129)], 'tags: must have 1 to 128 characters each'],
    [['🦊'.repeat(129)], 'tags: must have 1 to 128 characters each'],
    [['\ud800'], 'tags: must be Unicode text'],
  ])('%j are refused, and nothing is counted', async (tags, message) => {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'refused' });
    const { status, body } = await ask(0, { key, tags });
    expect([status, body.error.message]).toEqual([400, message]);
    expect(sumOf(await verifications('keys.getVerifications', { keyId }))).toEqual(none());
  });

  test('of an unknown key are counted nowhere', async () => {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'unknown' });
    expect((await ask(0, { key: 'nobody', tags: ['x'], apiId: 'unknown' })).body.code).toBe('NOT_FOUND');
    await fleet.verdict(key);
    expect((await ask(0, { key, tags: [] })).body.code).toBe('VALID');
    await reaches(() => verifications('apis.getVerifications', { apiId: 'unknown' }), {
      ...none(),
      VALID: 2,
    });
    expect(await verifications('apis.getVerifications', { apiId: 'unknown', groupBy: 'tag' })).toEqual([]);
  });

  test.each([
    [{ granularity: 'hour', tag: 'a' }, /^granularity: /],
    [{ granularity: 'hour', groupBy: 'tag' }, /^granularity: /],
    [{ groupBy: 'tag', tag: 'a' }, /^tag: /],
    [{ groupBy: 'key' }, /^groupBy: /],
    [{ tag: '' }, /^tag: /],
    [{ tag: 'x'.repeat(129) }, /^tag: /],
    [{ limit: '1001' }, /^limit: /],
  ])('are not asked for as %j', async (query, message) => {
    const { status, body } = await fleet.admin('apis.getVerifications', { apiId: 'counted', ...query });
    expect([status, body.error.message]).toEqual([400, expect.stringMatching(message)]);
  });
});

test('an API that does not exist has 404', async () => {
  expect((await fleet.admin('apis.getVerifications', { apiId: 'nowhere' })).status).toBe(404);
});
