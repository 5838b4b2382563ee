import { expect, test } from 'vitest';
import type { Clock } from '#shared/clock.ts';
import { Pool } from '../../../verifier/core/allowances/pool.ts';

/** A pool of a rate limit that was granted 10 in a window that ends 500 ms after the exchange was sent. */
function granted() {
  const now = { monotonicMs: 1000, wallMs: 1_700_000_000_000 };
  const clock: Clock = {
    monotonicMs: () => now.monotonicMs,
    wallMs: () => now.wallMs,
    after: () => ({ cancel: () => undefined }),
  };
  const window = { limit: 10, durationMs: 1000, isExact: false };
  const pool = new Pool('key_1.1000.default', clock, 2000, () => undefined, window);
  pool.begin(1);
  const counts = {
    turn: 1,
    status: 'OK',
    granted: 10,
    spent: 0,
    spokenFor: 0,
    total: 0,
    refillMs: -1,
    lacking: 0,
  } as const;
  pool.replied({ ...counts, window: { number: 7, leftMs: 500 } });
  return { pool, now };
}

test.each([
  ['both clocks', 501, 501],
  ['the monotonic clock, whose date was set back', 501, -9000],
  ['the date, where the machine was suspended and the monotonic clock stood', 0, 501],
])('what a window granted is nothing once the window is over by %s', (_, monotonicMs, wallMs) => {
  const { pool, now } = granted();
  now.monotonicMs += 400;
  now.wallMs += 400;
  expect([pool.available, pool.look(1, now.monotonicMs)]).toEqual([10, 'enough']);
  now.monotonicMs += monotonicMs - 400;
  now.wallMs += wallMs - 400;
  expect([pool.available, pool.look(1, now.monotonicMs)]).toEqual([0, undefined]);
});

test('reset is the end of the present window by the clock of Redis, whatever the date here', () => {
  const { pool, now } = granted();
  now.wallMs += 3_600_000;
  expect(pool.resetMs(now.monotonicMs)).toBe(8000);
  expect(pool.resetMs(now.monotonicMs + 499)).toBe(8000);
  expect(pool.resetMs(now.monotonicMs + 500)).toBe(9000);
  expect(pool.resetMs(now.monotonicMs + 2600)).toBe(11_000);
});

test('what remains in a new window is without what was spent in the one before', () => {
  const { pool, now } = granted();
  pool.take(3, now.monotonicMs);
  now.monotonicMs += 600;
  now.wallMs += 600;
  expect(pool.begin(2)).toMatchObject({ spent: 3, window: { number: 7 } });
  const counts = {
    turn: 2,
    status: 'OK',
    granted: 4,
    spent: 0,
    spokenFor: 1,
    total: 8,
    refillMs: -1,
    lacking: 0,
  } as const;
  pool.replied({ ...counts, window: { number: 8, leftMs: 900 } });
  expect([pool.remaining, pool.available]).toEqual([9, 4]);
  pool.take(1, now.monotonicMs);
  expect(pool.remaining).toBe(8);
});

test('what is spent while the reply is on its way is taken off what it says to remain', () => {
  const { pool, now } = granted();
  pool.begin(2);
  pool.take(3, now.monotonicMs);
  const counts = {
    turn: 2,
    status: 'OK',
    granted: 10,
    spent: 0,
    spokenFor: 0,
    total: 10,
    refillMs: -1,
    lacking: 0,
  } as const;
  pool.replied({ ...counts, window: { number: 7, leftMs: 400 } });
  expect([pool.remaining, pool.available]).toEqual([7, 7]);
});
