import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { SERIES_MAX } from '../../../control-plane/subjects/usage/operations.ts';
import {
  granularityOf,
  parseUsageQuery,
  rowsOf,
  type Series,
} from '../../../control-plane/unkey-v2/usage-query.ts';
import { LENGTH_MS, perUsageField, RETENTION } from '../../../shared/protocol/records/usage.ts';
import { ApiError } from '../../../shared/rules/errors.ts';

const NOW = Date.UTC(2026, 10, 25, 10, 20, 30);
const { hour: HOUR, day: DAY } = LENGTH_MS;
const TODAY = Date.UTC(2026, 10, 25);

const bucket = (time: number, counts: object) => ({ time, ...perUsageField(() => 0), ...counts });
/** Counts by day of two APIs, the last three days. */
const DAYS: Series[] = [
  {
    ids: { key_space_id: 'shop', api_id: 'shop' },
    buckets: [
      bucket(TODAY - 2 * DAY, { success: 1 }),
      bucket(TODAY - DAY, { success: 10, disabled: 2 }),
      bucket(TODAY, { success: 100, rateLimited: 5 }),
    ],
  },
  {
    ids: { key_space_id: 'books', api_id: 'books' },
    buckets: [bucket(TODAY - DAY, { success: 7 }), bucket(TODAY, { expired: 3 })],
  },
];
const run = (sql: string, series = DAYS) => {
  const query = parseUsageQuery(sql, NOW);
  return rowsOf(query, granularityOf(query, NOW), series);
};
const refusal = (sql: string): string => {
  try {
    run(sql);
  } catch (error) {
    if (error instanceof ApiError && error.code === 'BAD_REQUEST') return error.message;
    throw error;
  }
  return expect.unreachable(`${sql} is understood`);
};
const PER_DAY = 'FROM key_verifications_per_day_v1';

describe('a query is answered', () => {
  test('that the page shows', () => {
    const page = readFileSync(
      join(import.meta.dirname, '../../../control-plane/subjects/usage/README.md'),
      'utf8',
    );
    const [, sql = ''] = /```sql\n([\s\S]*?)```/.exec(page) ?? [];
    expect(run(sql)).toContainEqual({ outcome: 'VALID', total: 118 });
  });

  test('by one sum, 0 without a match', () => {
    expect(run(`SELECT SUM(count) AS total ${PER_DAY}`)).toEqual([{ total: 128 }]);
    expect(run(`select sum(count) as total ${PER_DAY} where outcome = 'VALID'`)).toEqual([{ total: 118 }]);
    expect(run(`SELECT SUM(count) as n ${PER_DAY} WHERE outcome NOT IN ('VALID', 'EXPIRED')`)).toEqual([
      { n: 7 },
    ]);
    expect(run(`SELECT SUM(count) ${PER_DAY} WHERE outcome = 'it''s none'`)).toEqual([{ 'sum(count)': 0 }]);
    expect(run('SELECT COUNT(*) AS total FROM key_verifications_v1')).toEqual([{ total: 128 }]);
    expect(run('SELECT count() FROM key_verifications_v1;')).toEqual([{ 'count()': 128 }]);
  });

  test('by group, in order, up to the limit', () => {
    expect(
      run(`SELECT outcome, SUM(count) AS count ${PER_DAY} GROUP BY outcome ORDER BY count DESC LIMIT 2`),
    ).toEqual([
      { outcome: 'VALID', count: 118 },
      { outcome: 'RATE_LIMITED', count: 5 },
    ]);
    expect(run(`SELECT time as date, SUM(count) as n ${PER_DAY} GROUP BY date ORDER BY date`)).toEqual([
      { date: TODAY - 2 * DAY, n: 1 },
      { date: TODAY - DAY, n: 19 },
      { date: TODAY, n: 108 },
    ]);
    expect(
      run(
        `SELECT key_space_id, SUM(count) AS n, SUM(CASE WHEN outcome = 'VALID' THEN count ELSE 0 END) AS good, sumIf(count, outcome != 'VALID') AS bad ${PER_DAY} GROUP BY key_space_id ORDER BY SUM(count)`,
      ),
    ).toEqual([
      { key_space_id: 'books', n: 10, good: 7, bad: 3 },
      { key_space_id: 'shop', n: 118, good: 111, bad: 7 },
    ]);
    expect(
      run(
        "SELECT api_id, countIf(outcome = 'VALID') AS good FROM key_verifications_v1 GROUP BY api_id ORDER BY api_id DESC, good",
      ),
    ).toEqual([
      { api_id: 'shop', good: 111 },
      { api_id: 'books', good: 7 },
    ]);
    expect(
      run(`SELECT outcome ${PER_DAY} GROUP BY outcome, key_space_id ORDER BY outcome ASC -- each API's own`),
    ).toEqual(['DISABLED', 'EXPIRED', 'RATE_LIMITED', 'VALID', 'VALID'].map((outcome) => ({ outcome })));
    const hours = [bucket(TODAY + 2 * HOUR, { success: 1 }), bucket(TODAY + 3 * HOUR, { success: 2 })];
    expect(
      run(
        'SELECT toStartOfDay(time) AS day, SUM(count) AS n FROM key_verifications_per_hour_v1 GROUP BY toDate(time)',
        [{ ids: {}, buckets: hours }],
      ),
    ).toEqual([{ day: TODAY, n: 3 }]);
  });

  test.each([
    ['>= now() - INTERVAL 1 DAY', 108], // yesterday began earlier
    ['>= today() - INTERVAL 1 DAY', 127],
    ['>= yesterday()', 127],
    ['>= toStartOfDay(now() - INTERVAL 1 DAY)', 127],
    ["> toDate('2026-11-24')", 108],
    ["= '2026-11-24'", 19],
    ["< '2026-11-24 00:00:00'", 1],
    ["<= toDateTime('2026-11-24 00:00:00')", 20],
    ["<= '2026-11-23T23:59:59.999Z'", 1],
    ["> now() - INTERVAL '2' weeks", 128],
  ])('in the time %s', (condition, total) => {
    expect(run(`SELECT SUM(count) AS total ${PER_DAY} WHERE time ${condition}`)).toEqual([{ total }]);
  });

  test('from every hour or day that the time touches', () => {
    const count = (condition: string, buckets: Series['buckets']) =>
      run(`SELECT COUNT(*) AS n FROM key_verifications_v1 WHERE time ${condition}`, [{ ids: {}, buckets }]);
    const hours = [1, 2, 3].map((i) => bucket(TODAY + i * HOUR, { success: 10 ** i }));
    const middle = TODAY + 2 * HOUR + 1;
    expect(count(`>= ${middle}`, hours)).toEqual([{ n: 1100 }]);
    expect(count(`>= ${middle} AND time < ${middle}`, hours)).toEqual([{ n: 100 }]);
    expect(count(`>= ${middle} AND time <= ${TODAY + 2 * HOUR - 1}`, hours)).toEqual([{ n: 0 }]);
    expect(count(`> ${TODAY + 3 * HOUR - 1}`, hours)).toEqual([{ n: 1000 }]);
  });
});

test('reads hours where they are kept, else days', () => {
  const granularity = (rest: string) =>
    granularityOf(parseUsageQuery(`SELECT COUNT(*) AS n FROM key_verifications_v1 ${rest}`, NOW), NOW);
  expect(granularity('WHERE time >= now() - INTERVAL 47 HOUR')).toBe('hour');
  expect(granularity('WHERE time >= now() - INTERVAL 48 HOUR')).toBe('day');
  expect(granularity('WHERE time >= now() - INTERVAL 30 DAY')).toBe('day');
  expect(granularity('')).toBe('day');
  expect(granularity('GROUP BY toStartOfHour(time)')).toBe('hour');
  expect(granularity('GROUP BY toStartOfDay(time)')).toBe('day');
});

test.each([
  ['WHERE time >= now() - INTERVAL 31 DAY', 'key_verifications_v1', 'days for 31 days'],
  ['WHERE time >= now() - INTERVAL 31 DAY', 'key_verifications_per_day_v1', ''],
  ['WHERE time >= now() - INTERVAL 32 DAY', 'key_verifications_per_day_v1', 'days for 31 days'],
  ['WHERE time >= now() - INTERVAL 48 HOUR', 'key_verifications_per_hour_v1', ''],
  [
    'WHERE time >= now() - INTERVAL 49 HOUR',
    'key_verifications_per_hour_v1',
    'or key_verifications_per_day_v1',
  ],
  ["WHERE time = '2020-01-01'", 'key_verifications_per_day_v1', 'use a later time'],
])('passes over no expired count: %s of %s', (condition, table, message) => {
  const sum = table === 'key_verifications_v1' ? 'COUNT(*)' : 'SUM(count)';
  const sql = `SELECT ${sum} AS n FROM ${table} ${condition}`;
  if (message === '') expect(run(sql, [])).toEqual([{ n: 0 }]);
  else expect(refusal(sql)).toContain(message);
});

test.each([
  ['', 'at the end, SELECT is required'],
  ['DELETE FROM key_verifications_v1', 'at character 1, SELECT is required'],
  ['SELECT * FROM key_verifications_v1', 'a column, COUNT(*) or SUM(count)'],
  ['SELECT COUNT(*) FROM default.key_verifications', 'character 29 begins no word'],
  ['SELECT COUNT(*) FROM default', 'the name of a table'],
  ['SELECT COUNT(*) FROM key_verifications_per_minute_v1', 'minutes are counted only by API'],
  ['SELECT SUM(count) FROM key_verifications_per_month_v1', 'months are not counted'],
  [`SELECT COUNT(*) ${PER_DAY}`, 'use SUM(count)'],
  [
    'SELECT COUNT(*) FROM key_verifications_v1 WHERE time > 1893456000',
    'must be Unix milliseconds, not seconds',
  ],
  ['SELECT SUM(count) FROM key_verifications_v1', 'use COUNT(*)'],
  [`SELECT SUM(spent_credits) ${PER_DAY}`, 'CASE is required'],
  [`SELECT SUM(count) / 2 ${PER_DAY}`, 'character 19 begins no word'],
  [`SELECT SUM(count) ${PER_DAY} WHERE outcome = 'VALID' OR outcome = 'EXPIRED'`, 'the end is required'],
  [`SELECT SUM(count) ${PER_DAY} WHERE (outcome = 'VALID')`, 'OUTCOME is required'],
  [`SELECT SUM(count) ${PER_DAY} WHERE outcome = "VALID"`, 'begins no word'],
  [`SELECT SUM(count) ${PER_DAY} WHERE outcome = 'VALID`, 'begins no word'],
  [`SELECT SUM(count) ${PER_DAY} WHERE key_id != 'a'`, 'key_id: only = and IN'],
  [`SELECT SUM(count) ${PER_DAY} WHERE key_id IN ()`, 'a text in single quotes'],
  [`SELECT SUM(count) ${PER_DAY} WHERE time >= 1764000000000`, 'a time, such as'],
  [`SELECT SUM(count) ${PER_DAY} WHERE time >= 'soon'`, 'a time, such as'],
  [`SELECT SUM(count) ${PER_DAY} WHERE time >= now() - INTERVAL 1 YEAR`, 'MINUTE, HOUR, DAY or WEEK'],
  ['SELECT COUNT(*) FROM key_verifications_v1 WHERE time = 5', 'use >='],
  ['SELECT time, COUNT(*) FROM key_verifications_v1 GROUP BY time', 'use toStartOfHour(time)'],
  [`SELECT toStartOfHour(time), SUM(count) ${PER_DAY} GROUP BY toStartOfHour(time)`, 'per_hour_v1'],
  [`SELECT outcome, SUM(count) ${PER_DAY}`, 'outcome must be in GROUP BY'],
  [`SELECT SUM(count) AS n ${PER_DAY} GROUP BY n`, 'n is a sum'],
  [`SELECT SUM(count) AS n, SUM(count) AS N ${PER_DAY}`, 'a name of its own'],
  [`SELECT SUM(count) AS from ${PER_DAY}`, 'must not be a word of SQL'],
  [`SELECT SUM(CASE WHEN outcome = 'VALID' THEN count ELSE 0 END) ${PER_DAY}`, 'AS and a name'],
  [`SELECT SUM(count) ${PER_DAY} GROUP BY outcome, time, outcome`, 'GROUP BY: outcome must be there once'],
  [
    `SELECT toDate(time) AS d, SUM(count) ${PER_DAY} GROUP BY d, toStartOfDay(time)`,
    'time must be there once',
  ],
  [`SELECT ${Array.from({ length: 21 }, (_, i) => `SUM(count) AS n${i}`)} ${PER_DAY}`, 'SELECT: at most 20'],
  [`SELECT SUM(count) AS n ${PER_DAY} ORDER BY n${', n'.repeat(20)}`, 'ORDER BY: at most 20'],
  [`SELECT SUM(count) ${PER_DAY} WHERE outcome = 'a'${" AND outcome = 'a'".repeat(20)}`, 'WHERE: at most 20'],
  [`SELECT SUM(count) ${PER_DAY} WHERE outcome IN ('a'${", 'a'".repeat(100)})`, 'IN: at most 100'],
  [`SELECT SUM(count) ${PER_DAY} ORDER BY outcome`, 'a column of the result'],
  [`SELECT SUM(count) ${PER_DAY} LIMIT 0`, 'LIMIT: must be 1..10000'],
  [`SELECT SUM(count) ${PER_DAY} LIMIT 10001`, 'LIMIT: must be 1..10000'],
  [`SELECT SUM(count) ${PER_DAY}; SELECT 1`, 'the end is required'],
])('refuses what it does not understand, with: %s', (sql, message) => {
  expect(refusal(sql)).toContain(message);
  expect(refusal(sql)).not.toContain('VALID');
});

const words =
  "SELECT FROM WHERE AND GROUP ORDER BY LIMIT AS IN NOT DESC CASE WHEN THEN ELSE END INTERVAL DAY count sum sumIf countIf outcome time key_id key_space_id external_id toStartOfHour toDate now today key_verifications_v1 key_verifications_per_day_v1 key_verifications_per_hour_v1 __proto__ constructor n ( ) , = >= < != * - ; 0 1 7 999999999999999 'VALID' '2026-11-25' '9999-99-99' ''".split(
    ' ',
  );

test('whatever it is, answers rows or BAD_REQUEST', () => {
  const clause = fc.array(fc.constantFrom(...words), { maxLength: 40 }).map((parts) => parts.join(' '));
  const near = fc
    .tuple(clause, clause)
    .map(([one, two]) => `SELECT SUM(count) AS n ${PER_DAY} WHERE time >= now() ${one} GROUP BY ${two}`);
  fc.assert(
    fc.property(fc.oneof(clause, near, fc.string({ unit: 'binary', maxLength: 200 })), (sql) => {
      try {
        expect(run(sql)).toBeInstanceOf(Array);
      } catch (error) {
        if (!(error instanceof ApiError) || error.code !== 'BAD_REQUEST') throw error;
      }
    }),
    { numRuns: 5000 },
  );
});

/** A query that is understood, with the rows that a plain reading of it gives. */
const understood = fc.record({
  outcomes: fc.option(fc.subarray(['VALID', 'DISABLED', 'EXPIRED', 'NONE'], { minLength: 1 }), {
    nil: undefined,
  }),
  isNegated: fc.boolean(),
  group: fc.constantFrom('outcome', 'time', 'key_space_id'),
  since: fc.integer({ min: 0, max: 3 }),
  isDescending: fc.boolean(),
  limit: fc.integer({ min: 1, max: 4 }),
});
test('has the rows of a plain reading', () => {
  const cells = DAYS.flatMap(({ ids, buckets }) =>
    buckets.flatMap(({ time, ...counts }) =>
      Object.entries({
        VALID: 'success',
        DISABLED: 'disabled',
        EXPIRED: 'expired',
        RATE_LIMITED: 'rateLimited',
      }).map(([outcome, field]) => ({
        outcome,
        time,
        key_space_id: ids.key_space_id ?? '',
        count: (counts as Record<string, number>)[field] ?? 0,
      })),
    ),
  ).filter(({ count }) => count > 0);
  fc.assert(
    fc.property(understood, ({ outcomes, isNegated, group, since, isDescending, limit }) => {
      const list = outcomes?.map((outcome) => `'${outcome}'`).join(', ');
      const among = outcomes ? ` AND outcome ${isNegated ? 'NOT ' : ''}IN (${list})` : '';
      const rows = run(
        `SELECT ${group} AS g, SUM(count) AS n ${PER_DAY} WHERE time >= today() - INTERVAL ${since} DAY${among} GROUP BY g ORDER BY g ${isDescending ? 'DESC' : ''} LIMIT ${limit}`,
      );
      const sums = new Map<string | number, number>();
      for (const cell of cells) {
        if (cell.time < TODAY - since * DAY || (outcomes && outcomes.includes(cell.outcome) === isNegated))
          continue;
        sums.set(cell[group as 'time'], (sums.get(cell[group as 'time']) ?? 0) + cell.count);
      }
      const sorted = [...sums].map(([g, n]) => ({ g, n })).sort((a, b) => (a.g < b.g ? -1 : 1));
      expect(rows).toEqual((isDescending ? sorted.reverse() : sorted).slice(0, limit));
    }),
    { numRuns: 1000 },
  );
});

test('needs a LIMIT for a result of too many rows', () => {
  const many = Array.from({ length: 101 }, (_, i) => ({
    ids: { key_id: `key_${i}` },
    buckets: Array.from({ length: 100 }, (_, j) => bucket(TODAY - j * DAY, { success: 1 })),
  }));
  const sql = `SELECT key_id, time, SUM(count) AS n ${PER_DAY} GROUP BY key_id, time`;
  expect(() => run(sql, many)).toThrow('more than 10000 rows');
  expect(run(`${sql} LIMIT 10000`, many)).toHaveLength(10_000);
});

test('answers up to its bounds and refuses more', () => {
  const most = Array.from({ length: SERIES_MAX }, (_, i) => ({
    ids: { key_space_id: 'shop', api_id: 'shop', key_id: `key_${i}`, external_id: 'e' },
    buckets: Array.from({ length: RETENTION.hour }, (_, j) => ({
      ...{ time: TODAY - j * HOUR },
      ...perUsageField(() => 1),
    })),
  }));
  const sums = Array.from({ length: 19 }, (_, i) => `sumIf(count, outcome != 'EXPIRED') AS n${i}`);
  const conditions = "outcome NOT IN ('A', 'EXPIRED') AND ".repeat(19);
  const sql = (groups: string) =>
    `SELECT key_id, ${sums} FROM key_verifications_per_hour_v1 WHERE ${conditions} external_id = 'e' GROUP BY key_id, ${groups} ORDER BY ${'n1, '.repeat(19)} key_id LIMIT 1`;
  expect(() => run(sql('time, outcome, key_space_id, api_id, external_id'), most)).toThrow(
    'more than 20000 rows before LIMIT',
  );
  expect(run(sql('time'), most)).toHaveLength(1);
});
