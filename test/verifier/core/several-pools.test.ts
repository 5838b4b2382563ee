import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { systemClock } from '../../../shared/clock.ts';
import { ask, type Claim, spend } from '../../../verifier/core/allowances/allowance.ts';
import { creditCounts, Pools } from '../../../verifier/core/allowances/pools.ts';

/** A verifier's pools where Redis grants what is needed, but of `b` only at the second time; `turns` counts calls. */
function fleetOf() {
  let turns = 0;
  let asksOfB = 0;
  const pools = new Pools({
    member: '2.a',
    clock: systemClock,
    sliceMs: 0,
    counts: creditCounts(),
    behind: () => undefined,
    async exchange(_member, asked) {
      turns++;
      await pause(1);
      return asked.map(({ pool, turn, spent = 0, kept, needs }) => {
        const need = needs.reduce((sum, { cost, times }) => sum + cost * times, 0);
        const isLate = pool === 'b' && need > 0 && ++asksOfB === 1;
        const spokenFor = isLate ? 0 : Math.max(0, need - kept);
        const counts = { granted: spent + kept + spokenFor, spent, spokenFor, total: 90, refillMs: -1 };
        return { turn, status: isLate ? 'WAIT' : 'OK', ...counts, lacking: isLate ? need : 0 } as const;
      });
    },
  });
  return { pools, turns: () => turns };
}

/** A request that waits until it has all of its claims. */
function request(claims: readonly Claim[]) {
  const waiter = {
    over: false,
    again: () => {
      if (spend(claims, systemClock.monotonicMs())) waiter.over = true;
      else ask(claims, waiter, systemClock.monotonicMs());
    },
    fail: () => undefined,
  };
  waiter.again();
  return waiter;
}

test('what a request has of one pool it keeps until it has the rest, though others recall both', async () => {
  const { pools, turns } = fleetOf();
  const claims = ['a', 'b'].map((id) => ({ pool: pools.get(id), cost: 5, limit: undefined }));
  for (const id of ['a', 'b']) pools.recalled(id);
  const waiter = request(claims);
  await pause(100);
  expect(waiter.over).toBe(true);
  expect(turns()).toBeLessThan(10);
});

test('what a request waited for that is over is given back like the rest', async () => {
  const { pools } = fleetOf();
  const [a, b] = [pools.get('a'), pools.get('b')];
  const waiter = request([a, b].map((pool) => ({ pool, cost: 5, limit: undefined })));
  waiter.over = true;
  await pause(3500);
  expect([a.isSettled, b.isSettled, pools.held]).toEqual([true, true, 0]);
});
