import { expect, test } from 'vitest';
import { Demand } from '../../../shared/metering/demand.ts';

const waiter = () => ({ over: false, again: () => undefined, fail: () => undefined });

test('who waits no more has no count and no needs', () => {
  const demand = new Demand();
  const [gone, late] = [waiter(), waiter()];
  demand.add(gone, 3, 10);
  demand.add(late, 4, 10);
  expect([demand.size, demand.cost]).toEqual([2, 7]);

  gone.over = true;
  expect([demand.size, demand.cost]).toEqual([1, 4]);
  expect(demand.begin()).toEqual({ limit: 10, needs: [{ cost: 4, times: 1 }] });

  late.over = true;
  expect([demand.size, demand.cost, demand.begin()]).toEqual([0, 0, undefined]);
});

test('a turn serves one limit, the next the next higher', () => {
  const demand = new Demand();
  for (const limit of [6, 2, 6, 4]) demand.add(waiter(), 1, limit);
  const limits = Array.from({ length: 4 }, () => demand.begin()?.limit);
  expect(limits).toEqual([2, 4, 6, 2]);
});

test('a turn wakes only those whom it serves', () => {
  const demand = new Demand();
  const [low, high, kept] = [waiter(), waiter(), waiter()];
  demand.add(high, 1, 6);
  demand.add(low, 1, 2);
  demand.add(kept, 1, 2, true);
  demand.begin();
  const woken = new Set<ReturnType<typeof waiter>>();
  demand.wakeCalled(woken);
  expect([...woken]).toEqual([low]);
  expect([demand.size, demand.isAsked]).toEqual([2, true]);
});

test('a turn has 50 different needs at the most', () => {
  const demand = new Demand();
  for (let cost = 1; cost <= 120; cost++) demand.add(waiter(), cost, 2);
  const sizes = [];
  for (const woken = new Set<ReturnType<typeof waiter>>(); demand.size > 0; ) {
    sizes.push(demand.begin()?.needs.length);
    demand.wakeCalled(woken);
  }
  expect(sizes).toEqual([50, 50, 20]);
});
