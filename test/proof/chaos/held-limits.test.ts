import { expect, test } from 'vitest';
import { LIMIT, reserveThroughKills } from './held-limits.ts';

/** HOLD_SECONDS=60 is the long run. */
const SECONDS = Number(process.env['HOLD_SECONDS'] ?? 8);

test('what is settled in a window is at most its limit', async () => {
  const { settled, unknown, lost, returned, refused, less, kills } = await reserveThroughKills(SECONDS);
  const most = Math.max(...settled.values());
  const all = [...settled.values()].reduce((sum, each) => sum + each, 0);
  console.log(JSON.stringify({ windows: settled.size, most, all, lost, returned, refused, less, kills }));
  expect(most).toBeLessThanOrEqual(LIMIT);
  expect(kills).toBeGreaterThan(0);
  expect(Math.min(refused, less)).toBeGreaterThan(0);
  expect(settled.size).toBeGreaterThan(2);
  // What came back was reserved again: half of each reservation comes back, and windows are used for more than half.
  expect(returned).toBeGreaterThan(0);
  const fullest = Math.max(...[...settled].map(([at, sum]) => sum + (unknown.get(at) ?? 0)));
  expect(fullest).toBeGreaterThan(0.6 * LIMIT);
});
