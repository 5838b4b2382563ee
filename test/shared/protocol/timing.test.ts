import { expect, test } from 'vitest';
import { fenceMs, LEASE, withinMs } from '../../../shared/protocol/timing.ts';

/** Speeds of two clocks, as far apart as is assumed. */
const SPEEDS = [
  [1, 1.03],
  [1.03, 1],
  [1 / 1.03, 1],
] as const;

test.each(SPEEDS)('a fence outlasts each lease, at speeds %f and %f', (follower, writer) => {
  for (const leaseMs of [LEASE.minMs, LEASE.usualMs, 12_345, LEASE.maxMs])
    expect(fenceMs(leaseMs, 0) / writer).toBeGreaterThan(leaseMs / follower);
});

test.each(SPEEDS)('a grant is used within its window, at speeds %f and %f', (own, other) => {
  for (const windowMs of [1, 1000, 4000])
    expect(withinMs(windowMs) / own).toBeLessThanOrEqual(windowMs / other);
});

test('a fence outlasts what a deposed primary grants', () => {
  expect(fenceMs(10_000, 12_000) - fenceMs(10_000, 0)).toBe(12_000);
});
