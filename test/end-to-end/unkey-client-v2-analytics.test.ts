import fc from 'fast-check';
import { Unkey } from 'unkey-api-2';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';

/** The client of today, unchanged, asks in SQL for counts that real verifiers reported. */
let fleet: Fleet;
let admin: Unkey;
/** What was created before the tests, by name. */
const keys: Record<string, { keyId: string; key: string }> = {};

const clientOf = (rootKey: string) =>
  new Unkey({
    ...{ rootKey, serverURL: fleet.controlPlanes[0]?.address ?? '', retryConfig: { strategy: 'none' } },
  });
const rows = async (query: string, client = admin) =>
  (await client.analytics.getVerifications({ query })).data;
const refusal = async (query: string, client = admin): Promise<{ status: number; detail: string }> =>
  client.analytics.getVerifications({ query }).then(
    () => expect.unreachable('it was not refused'),
    (error: { statusCode: number; body: string }) => ({
      status: error.statusCode,
      ...JSON.parse(error.body).error,
    }),
  );

beforeAll(async () => {
  // A busy machine is to end no lease, after which a key in memory is counted anew.
  fleet = await Fleet.start({ env: { LEASE_MS: '30000', LOOKUP_WAIT_MS: '5000', USAGE_PERIOD_MS: '50' } });
  admin = clientOf(ROOT_KEY);
  const create = async (name: string, input: object) => {
    keys[name] = await fleet.ok('keys.createKey', input);
  };
  await create('ada', { apiId: 'shop', externalId: 'ada' });
  await create('ada2', { apiId: 'books', externalId: 'ada' });
  await create('grace', { apiId: 'shop', externalId: 'grace' });
  await create('disabled', { apiId: 'shop', enabled: false });
  for (const [name, times] of [
    ['ada', 5],
    ['ada2', 3],
    ['grace', 7],
    ['disabled', 2],
  ] as const)
    for (let i = 0; i < times; i++) await fleet.verify(keys[name]?.key ?? '');
  await fleet.until(async () => (await rows('SELECT COUNT(*) AS n FROM key_verifications_v1'))[0]?.n === 17);
});
afterAll(() => fleet.stop());

const DAY = 'FROM key_verifications_per_day_v1 WHERE time >= now() - INTERVAL 7 DAY';

test('the queries of its documentation are answered', async () => {
  expect(
    await rows(
      "SELECT COUNT(*) as total FROM key_verifications_v1 WHERE outcome = 'VALID' AND time >= now() - INTERVAL 7 DAY",
    ),
  ).toEqual([{ total: 15 }]);
  expect(
    await rows(
      'SELECT outcome, SUM(count) as count FROM key_verifications_per_hour_v1 WHERE time >= now() - INTERVAL 24 HOUR GROUP BY outcome ORDER BY count DESC',
    ),
  ).toEqual([
    { outcome: 'VALID', count: 15 },
    { outcome: 'DISABLED', count: 2 },
  ]);
  const daily = await rows(
    `SELECT time as date, SUM(count) as verifications ${DAY} GROUP BY date ORDER BY date`,
  );
  expect(daily.reduce((sum, { verifications }) => sum + verifications, 0)).toBe(17);
  for (const { date } of daily) expect(date % 86_400_000).toBe(0);
  expect(
    await rows(`SELECT key_space_id, SUM(count) as n ${DAY} GROUP BY key_space_id ORDER BY n DESC`),
  ).toEqual([
    { key_space_id: 'shop', n: 14 },
    { key_space_id: 'books', n: 3 },
  ]);
  expect(
    await rows(
      `SELECT SUM(count) as total, SUM(CASE WHEN outcome = 'VALID' THEN count ELSE 0 END) as successful ${DAY} AND external_id = 'ada'`,
    ),
  ).toEqual([{ total: 8, successful: 8 }]);
  expect(
    await rows(
      `SELECT external_id, SUM(count) AS n ${DAY} AND external_id IN ('ada', 'grace', 'nobody') AND key_space_id = 'shop' GROUP BY external_id ORDER BY n DESC LIMIT 10`,
    ),
  ).toEqual([
    { external_id: 'grace', n: 7 },
    { external_id: 'ada', n: 5 },
  ]);
  const [ada, ada2] = [keys['ada']?.keyId, keys['ada2']?.keyId];
  expect(
    await rows(
      `SELECT key_id, SUM(count) AS n ${DAY} AND key_id IN ('${ada}', '${ada2}') GROUP BY key_id ORDER BY n`,
    ),
  ).toEqual([
    { key_id: ada2, n: 3 },
    { key_id: ada, n: 5 },
  ]);
  expect(
    await rows(`SELECT SUM(count) AS n ${DAY} AND key_id = '${ada}' AND key_space_id = 'books'`),
  ).toEqual([{ n: 0 }]);
});

test('has the counts of apis.getVerifications', async () => {
  for (const granularity of ['hour', 'day']) {
    const { verifications } = await fleet.ok('apis.getVerifications', { apiId: 'shop', granularity });
    const counts = await rows(
      `SELECT time, sumIf(count, outcome = 'VALID') AS success, sumIf(count, outcome = 'DISABLED') AS disabled FROM key_verifications_per_${granularity}_v1 WHERE key_space_id = 'shop' GROUP BY time ORDER BY time`,
    );
    expect(counts).toEqual(
      (verifications as { time: number; success: number; disabled: number }[]).flatMap(
        ({ time, success, disabled }) => (success + disabled > 0 ? [{ time, success, disabled }] : []),
      ),
    );
  }
});

test('refuses what counts cannot answer', async () => {
  for (const [query, detail] of [
    ['DROP TABLE key_verifications_v1', 'SELECT columns and sums FROM'],
    [`SELECT external_id, SUM(count) AS n ${DAY} GROUP BY external_id`, 'name the identities'],
    [`SELECT key_id, SUM(count) AS n ${DAY} GROUP BY key_id`, 'name the keys'],
    [`SELECT SUM(count) AS n ${DAY} AND key_id = 'a' AND external_id = 'b'`, 'external_id: must be absent'],
    [`SELECT SUM(count) AS n ${DAY} AND key_space_id = 'a b'`, 'is not the id of an API'],
    [`SELECT SUM(count) AS n ${DAY} AND key_id = 'a b'`, 'is not the id of a key'],
    ['x'.repeat(4001), 'must NOT have more than 4000'],
  ] as const)
    expect(await refusal(query)).toMatchObject({ status: 400, detail: expect.stringContaining(detail) });
  const secret = await refusal(`SELECT SUM(count) AS n ${DAY} AND key_id = '${keys.ada?.key}'`);
  expect(secret).toMatchObject({ status: 404, detail: expect.stringMatching(/^key \[a key\] not found;/) });
  for (const condition of ["key_space_id = 'nowhere'", "key_id = 'key_nowhere'"])
    expect(await refusal(`SELECT SUM(count) AS n ${DAY} AND ${condition}`)).toMatchObject({ status: 404 });
  expect(await refusal('SELECT 1', clientOf('nobody-knows-this-root-key-00000000'))).toMatchObject({
    status: 401,
  });
});

test('a root key of some APIs sees only those', async () => {
  const limited = async (...permissions: string[]) =>
    clientOf((await fleet.ok('rootKeys.createRootKey', { name: 'limited', permissions })).key);
  const books = await limited('api.books.read_analytics');
  const byApi = `SELECT api_id, SUM(count) AS n ${DAY} GROUP BY api_id`;
  expect(await rows(byApi, books)).toEqual([{ api_id: 'books', n: 3 }]);
  expect(await rows(`SELECT SUM(count) AS n ${DAY} AND external_id = 'ada'`, books)).toEqual([{ n: 3 }]);
  for (const condition of ["key_space_id = 'shop'", `key_id = '${keys['ada']?.keyId}'`]) {
    const hidden = await refusal(`SELECT SUM(count) AS n ${DAY} AND ${condition}`, books);
    expect(hidden).toMatchObject({ status: 404 });
  }
  const reader = await limited('api.*.read_key', 'api.*.read_api');
  expect(await refusal(byApi, reader)).toMatchObject({ status: 403 });
  expect(await refusal(`SELECT SUM(count) AS n ${DAY} AND key_space_id = 'shop'`, reader)).toMatchObject({
    ...{ status: 403, detail: expect.stringContaining('api.shop.read_analytics') },
  });
});

test('refuses too many keys or APIs in one query', async () => {
  const create = (input: object) => fleet.ok('keys.createKey', input);
  for (let i = 0; i < 4; i++)
    await Promise.all(Array.from({ length: 25 }, () => create({ apiId: 'shop', externalId: 'many' })));
  const ofMany = `SELECT SUM(count) AS n ${DAY} AND external_id = 'many'`;
  expect(await rows(ofMany)).toEqual([{ n: 0 }]);
  await create({ apiId: 'shop', externalId: 'many' });
  expect(await refusal(ofMany)).toMatchObject({ status: 400, detail: expect.stringContaining('100 keys') });
  for (let i = 0; i < 98; i++) await fleet.ok('apis.createApi', { apiId: `api-${i}`, name: 'x' });
  const ofAll = `SELECT SUM(count) AS n ${DAY}`;
  expect(await rows(ofAll)).toEqual([{ n: 17 }]);
  await fleet.ok('apis.createApi', { apiId: 'one-more', name: 'x' });
  expect(await refusal(ofAll)).toMatchObject({ status: 400, detail: expect.stringContaining('100 APIs') });
  expect(await rows(`${ofAll} AND key_space_id IN ('shop', 'books')`)).toEqual([{ n: 17 }]);
});

test('whatever the query, answers rows or a refusal', async () => {
  const parts =
    "SELECT FROM WHERE AND GROUP BY ORDER LIMIT AS IN NOT COUNT(*) SUM(count) n outcome time key_id api_id external_id key_verifications_v1 key_verifications_per_day_v1 ( ) , = >= != - 1 now() 'shop' 'ada' '' ; -- \u0000 '".split(
      ' ',
    );
  const query = fc.oneof(
    fc.array(fc.constantFrom(...parts), { minLength: 1, maxLength: 30 }).map((words) => words.join(' ')),
    fc
      .array(fc.constantFrom(...parts), { maxLength: 8 })
      .map((words) => `SELECT SUM(count) AS n ${DAY} ${words.join(' ')}`),
    fc.string({ unit: 'binary', minLength: 1, maxLength: 100 }),
  );
  await fc.assert(
    fc.asyncProperty(query, async (text) => {
      const { status } = await fleet.post(
        `${fleet.controlPlanes[0]?.address}/v2/analytics.getVerifications`,
        { query: text },
        { authorization: `Bearer ${ROOT_KEY}` },
      );
      expect([200, 400, 404]).toContain(status);
    }),
    { numRuns: 300 },
  );
});
