import { describe, expect, test } from 'vitest';
import { dueEvent } from '../../../../control-plane/subjects/duties/expiries.ts';
import {
  DELIVERY_MS_MAX,
  endpointPauseMs,
  FAILURES_TO_PAUSE,
  retryDelayMs,
} from '../../../../control-plane/subjects/webhooks/endpoint-sender.ts';

const [SECOND, MINUTE, HOUR, DAY] = [1000, 60_000, 3_600_000, 86_400_000];

test('retries after 5 s, then ever more rarely', () => {
  const waits: number[] = [];
  for (let ageMs = 0, attempts = 1; ; attempts++) {
    const waitMs = retryDelayMs(attempts, ageMs, 0.5);
    if (waitMs === undefined) break;
    waits.push(waitMs);
    ageMs += waitMs;
  }
  expect(waits[0]).toBe(5 * SECOND);
  expect(Math.max(...waits)).toBe(12 * HOUR);
  expect(waits.every((wait, i) => wait >= (waits[i - 1] ?? 0))).toBe(true);
  const all = waits.reduce((sum, wait) => sum + wait, 0);
  expect(all).toBeLessThanOrEqual(DELIVERY_MS_MAX);
  expect(all).toBeGreaterThan(DELIVERY_MS_MAX - 12 * HOUR);
  expect(DELIVERY_MS_MAX).toBe(3 * DAY);
  // With jitter, so that what failed together does not come back together.
  expect(retryDelayMs(1, 0, 0)).toBe(4 * SECOND);
  expect(retryDelayMs(1, 0, 0.999)).toBeCloseTo(6 * SECOND, -2);
});

test('rests an endpoint after five failures', () => {
  expect(endpointPauseMs(FAILURES_TO_PAUSE - 1, 0.5)).toBe(0);
  expect(endpointPauseMs(FAILURES_TO_PAUSE, 0.5)).toBe(5 * SECOND);
  expect(endpointPauseMs(FAILURES_TO_PAUSE + 1, 0.5)).toBe(10 * SECOND);
  expect(endpointPauseMs(1000, 0.5)).toBe(5 * MINUTE);
});

describe('the events about an expiry', () => {
  const NOW = 1_790_000_000_000;
  /** The events of a key from a time on, as a scheduler that is always in time sends them: days, and days before the end. */
  function eventsFrom(expiresMs: number, nowMs = NOW, leads = [30, 7, 1]) {
    const events: (readonly [days: number, before: number])[] = [];
    let dueMs = 0;
    for (let time = nowMs; ; ) {
      const { days, nextMs } = dueEvent({ dueMs, expiresMs }, leads, time);
      if (days !== undefined) events.push([days, (expiresMs - time) / DAY]);
      if (nextMs === undefined) return events;
      dueMs = nextMs;
      time = nextMs;
    }
  }

  test('come 30, 7, 1 day before and at it, once each', () => {
    expect(eventsFrom(NOW + 90 * DAY)).toEqual([
      [30, 30],
      [7, 7],
      [1, 1],
      [0, 0],
    ]);
  });

  test('are those left after a late change', () => {
    expect(eventsFrom(NOW + 20 * DAY)).toEqual([
      [30, 20],
      [7, 7],
      [1, 1],
      [0, 0],
    ]);
    expect(eventsFrom(NOW + 5 * DAY)).toEqual([
      [7, 5],
      [1, 1],
      [0, 0],
    ]);
    expect(eventsFrom(NOW + HOUR)).toEqual([
      [1, 1 / 24],
      [0, 0],
    ]);
  });

  test('are as configured, and at least the expiry', () => {
    expect(eventsFrom(NOW + 90 * DAY, NOW, [14])).toEqual([
      [14, 14],
      [0, 0],
    ]);
    expect(eventsFrom(NOW + 90 * DAY, NOW, [])).toEqual([[0, 0]]);
  });

  test('of an old expiry are told only if missed', () => {
    expect(eventsFrom(NOW - 4 * DAY)).toEqual([]);
    expect(eventsFrom(NOW - DAY)).toEqual([[0, -1]]);
    // It was due while no control plane ran.
    expect(dueEvent({ dueMs: NOW - 9 * DAY, expiresMs: NOW - 9 * DAY }, [7], NOW)).toEqual({ days: 0 });
  });
});
