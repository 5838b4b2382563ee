import { expect, test } from 'vitest';
import { Waiters } from '../../../verifier/core/pool.ts';

const waiter = () => ({ over: false, again: () => undefined, fail: () => undefined });

test('who waits no more has no count and no needs', () => {
  const waiters = new Waiters();
  const [gone, late] = [waiter(), waiter()];
  waiters.add(gone, 3);
  waiters.add(late, 4);
  expect([waiters.size, waiters.cost]).toEqual([2, 7]);

  gone.over = true;
  expect(waiters.cost).toBe(4);
  expect(waiters.size).toBe(1);
  expect(waiters.needs()).toEqual([{ cost: 4, times: 1 }]);

  late.over = true;
  expect(waiters.size).toBe(0);
  expect(waiters.cost).toBe(0);
});
