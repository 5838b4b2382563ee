import { expect, test } from 'vitest';
import type { Clock } from '#shared/process/clock.ts';
import { ask, type Need, spend } from '../../../verifier/metering/allowance.ts';
import { poolsBy } from '../../harness/no-credits.ts';
import { turns } from '../../harness/waiting.ts';

/** A verifier's pools where Redis grants what is needed, but of `b` only at the second time. */
function poolsOf() {
  let nowMs = 1000;
  let timers: { atMs: number; run: () => void }[] = [];
  const clock: Clock = {
    monotonicMs: () => nowMs,
    wallMs: () => nowMs,
    after: (ms, run) => {
      timers.push({ atMs: nowMs + ms, run });
      return { cancel: () => undefined };
    },
  };
  let calls = 0;
  let asksOfB = 0;
  const pools = poolsBy(
    async (_apiId, _member, asked) => {
      calls++;
      await new Promise((resolve) => setImmediate(resolve));
      return asked.map(({ pool, turn, spent = 0, kept, needs }) => {
        const need = needs.reduce((sum, { cost, times }) => sum + cost * times, 0);
        const isLate = pool === 'b' && need > 0 && ++asksOfB === 1;
        const reserve = isLate ? 0 : Math.max(0, need - kept);
        const counts = {
          granted: spent + kept + reserve,
          spent,
          reserve,
          total: 90,
          refillMs: -1,
        };
        return { turn, status: isLate ? 'WAIT' : 'OK', ...counts, leastNeed: isLate ? need : 0 } as const;
      });
    },
    { clock },
  );
  const pass = async (ms: number) => {
    for (const untilMs = nowMs + ms; nowMs < untilMs; nowMs += 5) {
      const due = timers.filter(({ atMs }) => atMs <= nowMs);
      timers = timers.filter(({ atMs }) => atMs > nowMs);
      for (const { run } of due) run();
      await turns();
    }
  };
  /** A request that waits until it has all of its needs. */
  const request = (needs: readonly Need[]) => {
    const waiter = {
      over: false,
      again: () => {
        const now = { monotonicMs: nowMs, wallMs: nowMs };
        if (spend(needs, now)) waiter.over = true;
        else ask(needs, waiter, now);
      },
      fail: () => undefined,
    };
    waiter.again();
    return waiter;
  };
  return { pools, calls: () => calls, pass, request };
}

test('keeps what it has until it has the rest', async () => {
  const { pools, calls, pass, request } = poolsOf();
  for (const id of ['a', 'b']) pools.get(id);
  for (const id of ['a', 'b']) pools.recall(id);
  const waiter = request(['a', 'b'].map((id) => ({ pool: pools.get(id), cost: 5, limit: undefined })));
  await pass(100);
  expect(waiter.over).toBe(true);
  expect(calls()).toBeLessThan(10);
  await pass(4000);
  expect([pools.get('a').isReported, pools.get('b').isReported]).toEqual([true, true]);
});

test('gives back what was kept for a dead request', async () => {
  const { pools, pass, request } = poolsOf();
  const [a, b] = [pools.get('a'), pools.get('b')];
  const waiter = request([a, b].map((pool) => ({ pool, cost: 5, limit: undefined })));
  await turns();
  expect(a.available).toBe(5);
  waiter.over = true;
  await pass(4000);
  expect([a.isReported, b.isReported, pools.available]).toEqual([true, true, 0]);
});
