import { expect, test } from 'vitest';
import { decodeState } from '../../../shared/key-record.ts';
import type { RedisNodes } from '../../../shared/redis/redis.ts';
import { Entry } from '../../../verifier/core/key-cache.ts';
import { Lease } from '../../../verifier/core/lease.ts';
import { Usage } from '../../../verifier/redis/usage-report.ts';
import { Timeline } from '../../simulation/clock.ts';

const PERIOD_MS = 1000;
const CALL_MS = 2;
const KEYS = 1000;

test('a report of many keys leaves Redis and the verifier free nine tenths of the time, but not one at the end', async () => {
  const timeline = new Timeline();
  const clock = {
    monotonicMs: () => timeline.nowMs,
    wallMs: () => 0,
    after: (ms: number, run: () => void) => timeline.after(ms, run),
  };
  const calls: { atMs: number; keys: number }[] = [];
  const redis = {
    evalsha(_sha: string, keys: number) {
      calls.push({ atMs: timeline.nowMs, keys });
      return new Promise((resolve) => void timeline.after(CALL_MS, () => resolve(1)));
    },
  };
  const nodes = {
    connection: () => redis,
    within: (_redis: unknown, work: Promise<unknown>) => work,
  } as unknown as RedisNodes;
  const log = { debug: () => undefined } as never;
  const usage = new Usage({ nodes, clock, log, periodMs: PERIOD_MS, keysMax: KEYS });
  const epoch = { apiId: 'api', lease: new Lease(clock), current: true, used: true };
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

test('verdicts whose report was sent and got no answer are never reported again, and those never sent are', async () => {
  const timeline = new Timeline();
  const clock = {
    monotonicMs: () => timeline.nowMs,
    wallMs: () => 0,
    after: (ms: number, run: () => void) => timeline.after(ms, run),
  };
  /** As Redis has them. */
  let counted = 0;
  let fault: 'no connection' | 'no answer' | undefined;
  const redis = {
    async evalsha(_sha: string, keys: number, ...rest: unknown[]) {
      // Behind the keys are two periods and the letters, then the counts of each key.
      for (const count of rest.slice(keys + 3)) counted += Number(count);
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
  });
  const epoch = { apiId: 'api', lease: new Lease(clock), current: true, used: true };
  const state = decodeState(['1']);
  const entry = new Entry(epoch, 'key_1', state);
  const period = () => timeline.run(timeline.nowMs + PERIOD_MS);
  usage.run();

  fault = 'no connection';
  for (let i = 0; i < 3; i++) usage.count(entry, 'VALID');
  usage.count(entry, 'DISABLED');
  await period();
  expect([counted, usage.keys, usage.dropped]).toEqual([0, 1, 0]);
  fault = 'no answer';
  await period();
  expect([counted, usage.keys, usage.dropped]).toEqual([4, 0, 4]);
  fault = undefined;
  await period();
  usage.count(entry, 'VALID');
  await period();
  expect([counted, usage.keys, usage.dropped]).toEqual([5, 0, 4]);
  const stopped = usage.stop();
  await timeline.run(timeline.nowMs + PERIOD_MS);
  await stopped;
});
