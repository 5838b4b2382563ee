import fc from 'fast-check';
import { expect, test } from 'vitest';
import { systemClock } from '../../../../shared/process/clock.ts';
import { Entry, KeyCache } from '../../../../shared/protocol/follower/key-cache.ts';
import { Lease } from '../../../../shared/protocol/follower/lease.ts';
import { decodeState } from '../../../../shared/protocol/records/key-record.ts';
import { digestOf, hashSecret } from '../../../../shared/rules/key-format.ts';
import { noPools } from '../../../harness/no-credits.ts';

const epochOf = (current: boolean) => ({
  apiId: 'shop',
  lease: new Lease(systemClock),
  companion: noPools,
  current,
  used: false,
  obeyedAtMs: 0,
});
const epoch = epochOf(true);
const put = (cache: KeyCache, key: string, of = epoch) =>
  cache.put(hashSecret(key), new Entry(of, key, decodeState(['1'])));
const has = (cache: KeyCache, key: string) => cache.get(digestOf(key))?.keyId === key;

test('keeps a key that is asked for among many', () => {
  const cache = new KeyCache(3);
  put(cache, 'asked');
  for (let i = 0; i < 500; i++) {
    expect(has(cache, 'asked'), String(i)).toBe(true);
    put(cache, `passing ${i}`);
  }
  expect(cache.size).toBe(3);
  expect(cache.evictions).toBe(498);
});

test('the key leaves that nobody asked for longest', () => {
  const cache = new KeyCache(4);
  for (const key of ['a', 'b', 'c', 'd']) put(cache, key);
  for (const key of ['b', 'a', 'd']) expect(has(cache, key)).toBe(true);
  for (const [next, gone] of [
    ['e', 'c'],
    ['f', 'b'],
    ['g', 'a'],
  ] as const) {
    put(cache, next);
    expect(has(cache, gone)).toBe(false);
  }
  expect(['d', 'e', 'f', 'g'].map((key) => has(cache, key))).toEqual([true, true, true, true]);
});

test('what was known in another time is no answer', () => {
  const cache = new KeyCache(2);
  const former = epochOf(true);
  put(cache, 'former', former);
  expect(has(cache, 'former')).toBe(true);
  former.current = false;
  expect(has(cache, 'former')).toBe(false);
});

test('a key that comes again takes the place of itself', () => {
  const cache = new KeyCache(2);
  for (const key of ['a', 'b', 'b', 'a']) put(cache, key);
  expect([has(cache, 'a'), has(cache, 'b'), cache.evictions]).toEqual([true, true, 0]);
});

test('holds no more than its keys', () => {
  const steps = fc.array(fc.tuple(fc.constantFrom('put', 'ask', 'forget'), fc.integer({ max: 9, min: 0 })), {
    maxLength: 200,
  });
  fc.assert(
    fc.property(fc.integer({ max: 5, min: 1 }), steps, (max, done) => {
      const cache = new KeyCache(max);
      const there = new Set<string>();
      for (const [what, key] of done.map(([step, n]) => [step, `key ${n}`] as const)) {
        if (what === 'put') put(cache, key);
        if (what === 'put') there.add(key);
        if (what === 'forget') cache.forget(hashSecret(key));
        if (what === 'forget') there.delete(key);
        if (what === 'ask') expect(has(cache, key)).toBe(there.has(key));
        // Only a key that comes pushes another out, and only one.
        expect(cache.size).toBeLessThanOrEqual(max);
        if (there.size > cache.size) {
          const left = [...there].filter((each) => cache.get(digestOf(each)) === undefined);
          expect(left).toHaveLength(1);
          for (const each of left) there.delete(each);
        }
        expect(there.size).toBe(cache.size);
      }
    }),
    { numRuns: 300 },
  );
});

test('a change of the roles or the customer of a key is one of what its customers may use, known here or not', () => {
  const told: [string, number][] = [];
  const cache = new KeyCache(2, (externalId, obeyedAtMs) => told.push([externalId, obeyedAtMs]));
  const now = epochOf(true);
  const state = (fields: object) => ({ ...decodeState(['1']), externalId: 'ada', roles: 'r0', ...fields });
  const change = (fields: object, obeyedAtMs: number) => {
    now.obeyedAtMs = obeyedAtMs;
    cache.update(hashSecret('k'), 'k', now, state(fields));
    return told.splice(0);
  };
  expect(change({}, 1)).toEqual([['ada', 1]]);
  const entry = new Entry(now, 'k', state({}));
  cache.put(hashSecret('k'), entry);
  expect([change({ name: 'Ada' }, 2), entry.obeyedAtMs]).toEqual([[], 1]);
  expect([change({ roles: 'r1' }, 3), entry.obeyedAtMs]).toEqual([[['ada', 3]], 3]);
  expect(change({ roles: 'r1', externalId: 'bob' }, 4)).toEqual([
    ['ada', 4],
    ['bob', 4],
  ]);
});
