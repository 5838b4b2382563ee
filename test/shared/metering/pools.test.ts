import { beforeEach, expect, test } from 'vitest';
import type { PoolReply, PoolTurn } from '../../../shared/metering/exchange.ts';
import type { Pools } from '../../../shared/metering/pools.ts';
import { systemClock } from '../../../shared/process/clock.ts';
import { poolsBy } from '../../harness/no-credits.ts';
import { turns } from '../../harness/waiting.ts';

/** Turns that were taken, and how the next is answered. */
let taken: PoolTurn[];
let status: PoolReply['status'];
let behind: number;
/** True where nothing happens because time passes. */
let isStill: boolean;
let pools: Pools;
const waiter = { over: false, again: () => undefined, fail: () => undefined };
beforeEach(() => {
  [taken, status, behind, isStill] = [[], 'OK', 0, false];
  pools = poolsBy(
    async (_apiId, _member, asked) => {
      taken.push(...asked);
      return asked.map(({ turn, needs, window }) => {
        const need = needs.reduce((sum, { cost, times }) => sum + cost * times, 0);
        const counts = { granted: need, spent: 0, reserve: 0, total: 95 + need, refillMs: -1 };
        const open = window ? { window: { number: 1, leftMs: window.durationMs } } : {};
        return { turn, status, ...counts, leastNeed: status === 'OK' ? 0 : 1, ...open };
      });
    },
    {
      clock: {
        ...systemClock,
        after: (ms, run) => (isStill ? { cancel: () => undefined } : systemClock.after(ms, run)),
      },
      onBehind: () => {
        behind++;
      },
    },
  );
});

test.each(['STALE', 'NOREG'] as const)('whoever is told %s looks for what it missed', async (told) => {
  status = told;
  pools.get('p').ask(waiter, 1);
  await turns();
  expect([taken.length, behind]).toEqual([1, 1]);
});

test.each(['OK', 'NONE', 'HELD'] as const)('whoever is told %s has missed nothing', async (told) => {
  status = told;
  pools.get('p').ask(waiter, 1);
  await turns();
  expect([taken.length, behind]).toEqual([1, 0]);
});

test('a dropped name gives back once what it had', async () => {
  pools.get('p').ask(waiter, 5);
  await turns();
  expect(pools.available).toBe(5);
  await pools.close(new AbortController().signal);
  await pools.close(new AbortController().signal);
  expect(pools.available).toBe(0);
  expect(taken).toHaveLength(2);
  expect(taken[1]).toMatchObject({ kept: 0 });
  pools.get('another').ask(waiter, 1);
  await turns();
  expect(taken).toHaveLength(2);
});

test('remembers only so many names used once', async () => {
  isStill = true;
  const limit = { limit: 10, durationMs: 3_600_000, isExact: false };
  pools.get('kept', limit).ask(waiter, 5, 10);
  for (let i = 0; i < 30_000; i++) {
    const pool = pools.get(`name-${i}`, limit);
    const again = () => pool.take(1, systemClock.monotonicMs());
    pool.ask({ ...waiter, again }, 1, 10);
    if (i % 1000 === 999) await turns();
  }
  await turns();
  expect(pools.limits).toBeLessThanOrEqual(25_000);
  expect(pools.get('kept', limit).available).toBe(5);
  expect(pools.get('name-29999', limit).remaining(10)).toBe(95);
});
