import { describe, expect, test } from 'vitest';
import { Entry } from '../../../shared/protocol/follower/key-cache.ts';
import { Lease } from '../../../shared/protocol/follower/lease.ts';
import { decodeState } from '../../../shared/protocol/records/key-record.ts';
import type { RedisNodes } from '../../../shared/redis/redis.ts';
import { OTHER_TAGS, TagCounts } from '../../../shared/reports/tag-counts.ts';
import { Usage } from '../../../shared/reports/usage-report.ts';
import { perVerdict } from '../../../shared/rules/verdict-codes.ts';
import { noPools } from '../../harness/no-credits.ts';
import { Timeline } from '../../proof/simulation/clock.ts';

const PERIOD_MS = 1000;
const CALL_MS = 2;
const KEYS = 1000;
const LIMITS = { reporter: 'me', tagsMax: 1000, tagsHeldMax: 1000 };

test('a report leaves nine tenths of the time free', async () => {
  const timeline = new Timeline();
  const clock = {
    monotonicMs: () => timeline.nowMs,
    wallMs: () => 0,
    after: (ms: number, run: () => void) => timeline.after(ms, run),
  };
  const calls: { atMs: number; keys: number }[] = [];
  const redis = {
    evalsha(_sha: string, keys: number) {
      // Before the keys are the mark, the tags and the whole API.
      calls.push({ atMs: timeline.nowMs, keys: keys - 3 });
      return new Promise((resolve) => void timeline.after(CALL_MS, () => resolve(1)));
    },
  };
  const nodes = {
    connection: () => redis,
    within: (_redis: unknown, work: Promise<unknown>) => work,
  } as unknown as RedisNodes;
  const log = { debug: () => undefined } as never;
  const usage = new Usage({ nodes, clock, log, periodMs: PERIOD_MS, keysMax: KEYS, ...LIMITS });
  const epoch = {
    apiId: 'api',
    lease: new Lease(clock),
    companion: noPools,
    current: true,
    used: true,
    obeyedAtMs: 0,
  };
  const state = decodeState(['1']);
  const entries = Array.from({ length: KEYS }, (_, n) => new Entry(epoch, `key_${n}`, state));
  const reported = () => calls.reduce((total, { keys }) => total + keys, 0);

  usage.run();
  for (const entry of entries) usage.count(entry, 'VALID');
  await timeline.run(1.5 * PERIOD_MS);
  expect(reported()).toBeGreaterThan(KEYS / 4);
  expect(usage.keys).toBe(KEYS - reported());
  // What is still to be reported takes room, what was reported does not.
  const others = Array.from({ length: KEYS }, (_, n) => new Entry(epoch, `other_${n}`, state));
  for (const entry of others) usage.count(entry, 'VALID');
  expect(usage.keys).toBe(KEYS);
  const found = reported();
  expect(usage.dropped).toBe(KEYS - found);
  await timeline.run(2 * PERIOD_MS);
  expect(reported()).toBe(KEYS);
  await timeline.run(4 * PERIOD_MS);
  expect(reported()).toBe(KEYS + found);
  for (const [i, { atMs, keys }] of calls.entries()) {
    expect(keys).toBeLessThanOrEqual(25);
    expect(atMs - (calls[i - 1]?.atMs ?? 0)).toBeGreaterThanOrEqual(10 * CALL_MS);
  }

  for (const entry of entries) usage.count(entry, 'VALID');
  const callsBefore = calls.length;
  const stopped = usage.stop();
  await timeline.run(timeline.nowMs + CALL_MS * (KEYS / 25));
  await stopped;
  expect(reported()).toBe(2 * KEYS + found);
  expect(calls.length - callsBefore).toBe(KEYS / 25);
});

test('repeats an unanswered report, then goes on', async () => {
  const timeline = new Timeline();
  const clock = {
    monotonicMs: () => timeline.nowMs,
    wallMs: () => timeline.nowMs,
    after: (ms: number, run: () => void) => timeline.after(ms, run),
  };
  /** Numbers of the reports, and how many verdicts of one key each has. */
  const sent: (readonly [number: number, verdicts: number])[] = [];
  let fault: 'no connection' | 'no answer' | undefined;
  const redis = {
    async evalsha(_sha: string, keys: number, ...rest: unknown[]) {
      const [number, ...counts] = rest.slice(keys + 4).map(Number);
      // Of the whole API and of the key, with an hour and a limit before them.
      sent.push([number ?? 0, counts.slice(2).reduce((sum, count) => sum + count, 0) / 2]);
      if (fault === 'no answer') throw new Error('the connection ended');
      return 1;
    },
  };
  const nodes = {
    async connection() {
      if (fault === 'no connection') throw new Error('Redis is away');
      return redis;
    },
    within: (_redis: unknown, work: Promise<unknown>) => work,
  } as unknown as RedisNodes;
  const usage = new Usage({
    nodes,
    clock,
    log: { debug: () => undefined } as never,
    periodMs: PERIOD_MS,
    keysMax: KEYS,
    ...LIMITS,
  });
  const epoch = {
    apiId: 'api',
    lease: new Lease(clock),
    companion: noPools,
    current: true,
    used: true,
    obeyedAtMs: 0,
  };
  const entry = new Entry(epoch, 'key_1', decodeState(['1']));
  const period = () => timeline.run(timeline.nowMs + PERIOD_MS);
  const count = (times: number) => {
    for (let i = 0; i < times; i++) usage.count(entry, i === 0 ? 'DISABLED' : 'VALID');
  };
  usage.run();

  fault = 'no connection';
  count(4);
  await period();
  expect([sent, usage.keys, usage.dropped]).toEqual([[], 1, 0]);
  expect(usage.extent).toEqual({ untilMs: 0 });
  fault = 'no answer';
  await period();
  const first = sent[0]?.[0] ?? 0;
  expect([sent, usage.keys, usage.dropped]).toEqual([[[first, 4]], 1, 0]);
  count(2);
  await period();
  // The same again, and nothing that could be taken for it.
  expect(sent).toEqual([
    [first, 4],
    [first, 4],
  ]);
  expect(usage.extent).toEqual({ untilMs: 0 });
  fault = undefined;
  await period();
  const { untilMs } = usage.extent;
  expect(untilMs).toBeGreaterThanOrEqual(4 * PERIOD_MS);
  expect(untilMs).toBeLessThanOrEqual(timeline.nowMs);
  expect(sent.slice(2)).toEqual([
    [first, 4],
    [expect.any(Number), 2],
  ]);
  expect(sent.at(-1)?.[0]).toBeGreaterThan(first);
  expect([usage.keys, usage.dropped]).toEqual([0, 0]);

  fault = 'no answer';
  count(3);
  const stopped = usage.stop();
  await timeline.run(timeline.nowMs + PERIOD_MS);
  await stopped;
  // Nobody will know any more.
  expect([usage.keys, usage.dropped]).toEqual([0, 3]);
  expect(usage.extent).toEqual({ untilMs, lostMs: expect.any(Number) });
});

test('drops and counts a report after an hour', async () => {
  const timeline = new Timeline();
  const clock = {
    monotonicMs: () => timeline.nowMs,
    wallMs: () => 0,
    after: (ms: number, run: () => void) => timeline.after(ms, run),
  };
  const redis = {
    evalsha: async () => {
      throw new Error('the connection ended');
    },
  };
  const nodes = {
    connection: async () => redis,
    within: (_redis: unknown, work: Promise<unknown>) => work,
  } as unknown as RedisNodes;
  const log = { debug: () => undefined } as never;
  const usage = new Usage({ nodes, clock, log, periodMs: 600_000, keysMax: KEYS, ...LIMITS });
  const epoch = {
    apiId: 'api',
    lease: new Lease(clock),
    companion: noPools,
    current: true,
    used: true,
    obeyedAtMs: 0,
  };
  const entry = new Entry(epoch, 'key_1', decodeState(['1']));
  usage.run();
  usage.count(entry, 'VALID', ['a', 'b', 'a']);
  await timeline.run(3_000_000);
  expect([usage.keys, usage.dropped]).toEqual([1, 0]);
  await timeline.run(6_000_000);
  expect([usage.keys, usage.dropped]).toEqual([0, 1]);
});

describe('counts by tag', () => {
  const COUNTED = { ...perVerdict(() => 0), VALID: 1 };

  test('are of each tag once, whatever it is called', () => {
    const counts = new TagCounts(100);
    const tags = ['__proto__', 'other', 'constructor', '🦊'.repeat(128), '__proto__'];
    counts.count('api', tags, 'VALID');
    expect(counts.size).toBe(4);
    expect([...counts.take(10)]).toEqual([['api', [...new Set(tags)].map((tag) => [tag, COUNTED])]]);
    expect([counts.size, [...counts.take(10)]]).toEqual([0, []]);
  });

  test('of too many tags are those of others', () => {
    const counts = new TagCounts(2);
    counts.count('a', ['1', '2', '3'], 'VALID');
    counts.count('b', ['1'], 'VALID');
    counts.restore('a', '2', COUNTED);
    counts.restore('a', '4', COUNTED);
    expect(counts.size).toBe(2);
    const two = { ...COUNTED, VALID: 2 };
    expect([...counts.take(2)]).toEqual([
      [
        'a',
        [
          ['1', COUNTED],
          ['2', two],
        ],
      ],
      ['a', [[OTHER_TAGS, two]]],
      ['b', [[OTHER_TAGS, COUNTED]]],
    ]);
  });
});
