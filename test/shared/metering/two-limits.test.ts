import { expect, test } from 'vitest';
import { systemClock } from '../../../shared/process/clock.ts';
import { RateLimits } from '../../../verifier/metering/rate-limits.ts';
import { poolsBy } from '../../harness/no-credits.ts';

/** Questions about one identifier, of which some say another limit; Redis counts as it does in a window. */
function limitsOf() {
  let granted = 0;
  let exchanges = 0;
  const companion = poolsBy(async (_apiId, _member, asked) => {
    exchanges++;
    await new Promise((resolve) => setImmediate(resolve));
    return asked.map(({ turn, spent = 0, kept, needs, window }) => {
      granted = spent + kept;
      const limit = window?.limit ?? 0;
      let reserve = 0;
      let leastNeed = 0;
      for (const { cost, times } of needs)
        for (let i = 0; i < times; i++)
          if (granted + reserve + cost <= limit) reserve += cost;
          else leastNeed = cost;
      granted += reserve;
      const counts = { granted, spent, reserve, total: limit - granted, refillMs: 60_000, leastNeed };
      const status = leastNeed === 0 ? 'OK' : 'NONE';
      return { turn, status, ...counts, window: { number: 1, leftMs: 60_000 } } as const;
    });
  });
  const limits = new RateLimits({
    sharedLog: {
      overridesOf: () => ({ overrides: undefined, obeyedAtMs: 0, companion }),
      readRecord: async () => undefined,
    },
    clock: systemClock,
    waitMs: 5000,
    tooSlow: () => new Error('too slow'),
  });
  let attempts = 0;
  const check = (limit: number) =>
    limits.check({
      ...{ namespace: 'calls', identifier: 'ada', limit, duration: 60_000 },
      get cost() {
        attempts++;
        return 1;
      },
    });
  return { check, attempts: () => attempts, exchanges: () => exchanges };
}

test('questions with two limits wait no longer than linearly', async () => {
  const { check, attempts } = limitsOf();
  const asked = Array.from({ length: 400 }, (_, i) => check(i % 2 === 0 ? 5000 : 6000));
  const answers = await Promise.all(asked);
  expect(answers.every(({ passed }) => passed)).toBe(true);
  // Twice for each that waits, and not once more for each of the others.
  expect(attempts()).toBeLessThanOrEqual(3 * asked.length);
});

test('each passes up to its own limit', async () => {
  const { check } = limitsOf();
  const answers = await Promise.all(Array.from({ length: 40 }, (_, i) => check(i % 2 === 0 ? 5 : 12)));
  const passed = (limit: number) => answers.filter((each) => each.limit === limit && each.passed).length;
  expect(passed(5)).toBeLessThanOrEqual(5);
  expect(passed(5) + passed(12)).toBe(12);
  expect((await check(20)).passed).toBe(true);
  expect((await check(12)).passed).toBe(false);
});
