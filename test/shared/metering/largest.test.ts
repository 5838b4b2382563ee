import { expect, test } from 'vitest';
import {
  isPlaces,
  type Limit,
  largestOf,
  ownLimit,
} from '../../../shared/protocol/records/limits-in-memory.ts';

const always = (name: string, limit: number, durationMs: number): Limit => ({
  ...ownLimit(name, limit, durationMs),
  isAutoApplied: true,
});
const SECOND_MS = 1000;

test('of several roles, the larger limit of a name applies', () => {
  const roles = [
    ownLimit('asked', 1, SECOND_MS),
    always('jobs', 3, 0),
    always('calls', 100, SECOND_MS),
    always('mixed', 1_000_000_000, SECOND_MS),
    always('jobs', 5, 0),
    always('jobs', 4, 0),
    always('calls', 99, SECOND_MS),
    always('calls', 1_000_000, 60_000 * SECOND_MS),
    always('mixed', 1, 0),
  ];
  for (const all of [roles, roles.toReversed()]) {
    const limits = largestOf(all) ?? [];
    // What applies always comes first, windows before places.
    expect(limits.map(isPlaces)).toEqual([false, true, true, false]);
    expect(new Map(limits.map(({ name, limit }) => [name, limit]))).toEqual(
      new Map(Object.entries({ calls: 100, jobs: 5, mixed: 1, asked: 1 })),
    );
  }
  expect(largestOf([])).toBeUndefined();
});
