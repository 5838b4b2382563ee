import { queryObjects } from 'node:v8';
import { expect, test } from 'vitest';
import { turn } from '../../harness/share.ts';
import {
  AT_LEAST_SEEDS,
  CHANGING_LIMIT_SEEDS,
  CHANGING_PLAN_SEEDS,
  CREDIT_SEEDS,
  DELETION_SEEDS,
  HELD_LIMIT_SEEDS,
  HOLD_SEEDS,
  IDENTITY_SEEDS,
  LATE_TOKEN_SEEDS,
  LIMIT_SEEDS,
  NEARBY_SEEDS,
  REFILL_SEEDS,
  REROLL_SEEDS,
  ROLE_SEEDS,
  ROOT_KEY_SEEDS,
  SHARED_CREDIT_SEEDS,
  SHARED_LIMIT_SEEDS,
  TOKEN_SEEDS,
} from './plan.ts';
import { simulate } from './simulate.ts';
import { World } from './world.ts';

/** Of those that `npm run simulate` takes by itself. */
const KNOWN = Array.from({ length: 300 }, (_, i) => i + 1);
/** Seeds that were never run before, as a rule: as many of each kind of world. */
const NEW = [
  1001,
  CREDIT_SEEDS,
  LIMIT_SEEDS,
  REROLL_SEEDS,
  ROLE_SEEDS,
  IDENTITY_SEEDS,
  REFILL_SEEDS,
  ROOT_KEY_SEEDS,
  HOLD_SEEDS,
  SHARED_CREDIT_SEEDS,
  CHANGING_LIMIT_SEEDS,
  SHARED_LIMIT_SEEDS,
  DELETION_SEEDS,
  TOKEN_SEEDS,
  NEARBY_SEEDS,
  HELD_LIMIT_SEEDS,
  AT_LEAST_SEEDS,
  LATE_TOKEN_SEEDS,
  CHANGING_PLAN_SEEDS,
].flatMap((from) => Array.from({ length: 2 }, (_, i) => from + (turn % 90_000) * 100 + i));
const SEEDS = [...KNOWN, ...NEW];

test('no seed breaks an invariant', async () => {
  const totals = { acks: 0, fence: 0, lost: 0, answers: 0, heldOff: 0 };
  const violations: string[] = [];
  for (const seed of SEEDS) {
    const { violation, counts } = await simulate(seed);
    if (violation) violations.push(`npm run simulate -- --seed ${seed} # ${violation.message}`);
    for (const name of ['acks', 'fence', 'lost', 'answers', 'heldOff'] as const) totals[name] += counts[name];
  }
  expect(violations).toEqual([]);
  // All that can happen did; how often is as these seeds have it.
  expect(totals.answers).toBeGreaterThan(100 * SEEDS.length);
  expect(Math.min(totals.acks, totals.fence, totals.lost, totals.heldOff)).toBeGreaterThan(0);
});

test('a seed replays exactly', async () => {
  for (const seed of [1, 2, 3, 4, 5]) {
    const [first, again] = [await simulate(seed), await simulate(seed, true)];
    expect(again.traceHash).toBe(first.traceHash);
    expect(again.events).toBe(first.events);
  }
  expect((await simulate(1)).traceHash).not.toBe((await simulate(2)).traceHash);
});

test('a seed leaves nothing behind in memory', async () => {
  for (let seed = 1; seed <= 30; seed++) await simulate(seed);
  await simulate(0); // the latest world may still be at hand
  expect(queryObjects(World, { format: 'count' })).toBeLessThanOrEqual(2);
});
