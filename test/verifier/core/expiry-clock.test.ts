import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ExpiryClock } from '../../../verifier/core/expiry-clock.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const START_MS = 1_790_000_000_000;

/** A machine whose date somebody sets, and the clock for expiry on it, read every minute. */
function machine() {
  let [monotonicMs, aheadMs] = [5000, START_MS];
  const clock = {
    monotonicMs: () => monotonicMs,
    wallMs: () => Math.floor(aheadMs + monotonicMs),
    after: () => ({ cancel: () => undefined }),
  };
  const expiry = new ExpiryClock(clock);
  return {
    expiry,
    setDate: (byMs: number) => {
      aheadMs += byMs;
    },
    pass: (ms: number) => {
      for (const end = monotonicMs + ms; monotonicMs < end; ) {
        monotonicMs = Math.min(end, monotonicMs + MINUTE_MS);
        expiry.nowMs();
      }
    },
    /** Lead of the clock for expiry over the date as it would be had nobody set it. */
    aheadMs: () => Math.round(expiry.nowMs() - START_MS - monotonicMs),
  };
}

describe('the date by which keys expire', () => {
  test('is the date, while nobody sets it', () => {
    const { pass, aheadMs } = machine();
    for (let i = 0; i < 5; i++) {
      expect(Math.abs(aheadMs())).toBeLessThanOrEqual(1);
      pass(7 * HOUR_MS + 0.7);
    }
  });

  test('goes forward with it at once', () => {
    const { setDate, aheadMs } = machine();
    setDate(3 * DAY_MS);
    expect(aheadMs()).toBe(3 * DAY_MS);
  });

  test('does not go back: expired stays expired', () => {
    const { setDate, pass, aheadMs } = machine();
    pass(5 * HOUR_MS);
    setDate(-DAY_MS);
    expect(aheadMs()).toBe(0);
    pass(HOUR_MS - 2 * MINUTE_MS);
    expect(aheadMs()).toBe(0);
  });

  test('comes back at once from an hour in the future', () => {
    const { setDate, pass, aheadMs } = machine();
    setDate(365 * DAY_MS);
    pass(50 * MINUTE_MS);
    expect(aheadMs()).toBe(365 * DAY_MS);
    setDate(-365 * DAY_MS);
    expect(aheadMs()).toBe(0);
  });

  test('comes back from a longer future an hour later', () => {
    const { setDate, pass, aheadMs } = machine();
    setDate(DAY_MS);
    pass(DAY_MS);
    setDate(-DAY_MS);
    expect(aheadMs()).toBe(DAY_MS);
    pass(HOUR_MS - 2 * MINUTE_MS);
    expect(aheadMs()).toBe(DAY_MS);
    pass(3 * MINUTE_MS);
    expect(aheadMs()).toBe(0);
  });

  test('comes back from a wrong start in the same way', () => {
    const { setDate, pass, aheadMs } = machine();
    setDate(-10 * DAY_MS); // it was wrong when the process began
    expect(aheadMs()).toBe(0);
    pass(HOUR_MS + 2 * MINUTE_MS);
    expect(aheadMs()).toBe(-10 * DAY_MS);
  });

  test('does not go back by repeated steps', () => {
    const { setDate, pass, aheadMs } = machine();
    for (let i = 0; i < 200; i++) {
      setDate(i % 2 === 0 ? -30 * MINUTE_MS : -2000);
      pass(50 * MINUTE_MS);
      expect(aheadMs()).toBe(0);
    }
  });

  test('is never before the date, nor goes back alone', () => {
    const step = fc.record({ byMs: fc.integer({ min: -DAY_MS, max: DAY_MS }), restMs: fc.nat(3 * HOUR_MS) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
        const { setDate, pass, expiry, aheadMs } = machine();
        let date = 0;
        for (const { byMs, restMs } of steps) {
          setDate(byMs);
          date += byMs;
          expect(aheadMs()).toBeGreaterThanOrEqual(date - 1);
          const before = expiry.nowMs();
          expect(expiry.nowMs()).toBe(before);
          pass(restMs);
        }
        pass(HOUR_MS + 2 * MINUTE_MS);
        expect(Math.abs(aheadMs() - date)).toBeLessThanOrEqual(1000);
      }),
    );
  });
});
