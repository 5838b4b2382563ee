import { expect, test } from 'vitest';
import { holdThroughKills } from './holds.ts';

const LIMIT = 20;
/** HOLD_SECONDS=60 is the long run. */
const SECONDS = Number(process.env['HOLD_SECONDS'] ?? 8);

test('200 callers never hold more than the limit', async () => {
  const { work, left, lost } = await holdThroughKills(LIMIT, SECONDS);
  console.log(JSON.stringify({ ...work, left, lost }));
  expect(work.most).toBeLessThanOrEqual(LIMIT);
  // Whatever limit was in force.
  expect(work.over).toBeLessThanOrEqual(0);
  expect(work.changes).toBeGreaterThan(0);
  expect(work.accepted).toBeGreaterThan(2 * LIMIT);
  expect(work.refused).toBeGreaterThan(0);
  expect(work.lives.some((killed) => killed > 0)).toBe(true);
});
