import fc from 'fast-check';
import { expect, test } from 'vitest';
import { systemClock } from '../../../shared/clock.ts';
import { digestOf, hashSecret } from '../../../shared/key-format.ts';
import { decodeState } from '../../../shared/key-record.ts';
import { Entry, KeyCache } from '../../../verifier/core/key-cache.ts';
import { Lease } from '../../../verifier/core/lease.ts';
import { noPools } from '../../harness/no-credits.ts';

const epochOf = (current: boolean) => ({
  apiId: 'shop',
  lease: new Lease(systemClock),
  pools: noPools,
  current,
  used: false,
});
const epoch = epochOf(true);
const put = (cache: KeyCache, key: string, of = epoch) =>
  cache.put(hashSecret(key), new Entry(of, key, decodeState(['1'])));
const has = (cache: KeyCache, key: string) => cache.get(digestOf(key))?.keyId === key;

test('a key that is asked for stays, however many come that are not', () => {
  const cache = new KeyCache(3);
  put(cache, 'asked');
  for (let i = 0; i < 500; i++) {
    expect(has(cache, 'asked'), String(i)).toBe(true);
    put(cache, `passing ${i}`);
  }
  expect(cache.size).toBe(3);
  expect(cache.evictions).toBe(498);
});

test('a key that was asked for long ago leaves before one that was asked for since', () => {
  const cache = new KeyCache(2);
  for (const key of ['old', 'new']) {
    put(cache, key);
    has(cache, key);
  }
  // The first search takes the marks of both away and then lets the older one go.
  put(cache, 'third');
  expect(['old', 'new', 'third'].map((key) => has(cache, key))).toEqual([false, true, true]);
});

test('where all were asked for one leaves nevertheless, after few were looked at', () => {
  const cache = new KeyCache(1000);
  const keys = Array.from({ length: 1000 }, (_, i) => `key ${i}`);
  for (const key of keys) put(cache, key);
  for (const key of keys) expect(has(cache, key)).toBe(true);
  put(cache, 'one more');
  expect(cache.size).toBe(1000);
  expect(keys.filter((key) => !has(cache, key))).toEqual(['key 63']);
});

test('what was known in another time is no answer, and leaves first', () => {
  const cache = new KeyCache(2);
  const former = epochOf(true);
  put(cache, 'former', former);
  put(cache, 'present');
  expect([has(cache, 'former'), has(cache, 'present')]).toEqual([true, true]);
  former.current = false;
  expect(has(cache, 'former')).toBe(false);
  put(cache, 'next');
  expect([has(cache, 'present'), has(cache, 'next')]).toEqual([true, true]);
});

test('a key that comes again takes the place of itself', () => {
  const cache = new KeyCache(2);
  for (const key of ['a', 'b', 'b', 'a']) put(cache, key);
  expect([has(cache, 'a'), has(cache, 'b'), cache.evictions]).toEqual([true, true, 0]);
});

test('never more than its keys, and one only leaves for another that came', () => {
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
