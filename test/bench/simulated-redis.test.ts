import { describe, expect, test } from 'vitest';
import type { Costs } from '../../bench/costs/simulated-redis.ts';
import { simulate } from '../../bench/costs/simulated-redis.ts';

const costs: Costs = {
  createUs: 0,
  updateUs: 200,
  publishUs: 4,
  ackUs: 40,
  idleSyncUs: 50,
  lookupUs: 0,
  bytesPerKey: 0,
  bytesPerVerifier: 0,
  verifyUs: 0,
};

describe('the simulated Redis', () => {
  test('is as busy as its work costs, until full', () => {
    const { busy } = simulate(costs, 1000, 5);
    const perSecond = 1000 * 50 + 5 * (200 + 1000 * (4 + 40));
    // Changes come at random moments.
    expect(busy).toBeGreaterThan((perSecond / 1e6) * 0.6);
    expect(busy).toBeLessThan((perSecond / 1e6) * 1.4);
  });

  test('completes a change in two journeys and work', () => {
    const { p50Ms, p99Ms } = simulate(costs, 1, 5);
    expect(p50Ms).toBeGreaterThan((200 + 4 + 2 * 250 + 40) / 1000);
    expect(p99Ms).toBeLessThan((200 + 4 + 2 * 1250 + 40 + 1250) / 1000);
  });

  test('completes no change before it serves its acks', () => {
    const { p50Ms } = simulate(costs, 2000, 1);
    expect(p50Ms).toBeGreaterThan((2000 * (4 + 40)) / 1000);
  });
});
