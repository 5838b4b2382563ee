import fc from 'fast-check';
import { expect, test } from 'vitest';
import { digestOf } from '../../../shared/rules/key-format.ts';
import { NegativeCache } from '../../../verifier/core/look-ups.ts';
import { FORBIDDEN, NOT_FOUND } from '../../../verifier/core/verdict.ts';

const TTL_MS = 1000;
const clockAt = (nowMs: () => number) => ({
  monotonicMs: nowMs,
  wallMs: () => 0,
  after: () => ({ cancel: () => undefined }),
});
const digests = Array.from({ length: 12 }, (_, n) => digestOf(String(n)));
/** Differ in the last byte only, and so are kept at one place. */
const twins = ['a', 'b'].map((last) => digestOf('twin').slice(0, -1) + last);

/** Steps, each at some time after the one before it: a digest is set, or asked for. */
const steps = fc.array(
  fc.record({ n: fc.nat(13), sets: fc.boolean(), forbidden: fc.boolean(), afterMs: fc.nat(400) }),
  { maxLength: 60 },
);

test('tells a digest only what was set for it', () => {
  fc.assert(
    fc.property(steps, fc.integer({ min: 1, max: 40 }), (all, max) => {
      let nowMs = 5;
      const unknown = new NegativeCache(
        max,
        TTL_MS,
        clockAt(() => nowMs),
      );
      const last = new Map<string, { verdict: typeof NOT_FOUND; sinceMs: number }>();
      for (const { n, sets, forbidden, afterMs } of all) {
        nowMs += afterMs;
        const digest = [...digests, ...twins][n] ?? '';
        if (sets) {
          const verdict = forbidden ? FORBIDDEN : NOT_FOUND;
          unknown.set(digest, verdict, nowMs - 3);
          last.set(digest, { verdict, sinceMs: nowMs - 3 });
          expect(unknown.get(digest)).toBe(verdict);
        } else {
          const told = unknown.get(digest);
          const mine = last.get(digest);
          if (told === undefined) continue;
          expect(told).toBe(mine?.verdict);
          expect(nowMs - (mine?.sinceMs ?? 0)).toBeLessThanOrEqual(TTL_MS);
        }
        expect(digests.filter((each) => unknown.get(each) !== undefined).length).toBeLessThanOrEqual(max);
      }
    }),
  );
});

test('a place holds one, the latest', () => {
  const unknown = new NegativeCache(
    10_000,
    TTL_MS,
    clockAt(() => 0),
  );
  const [a = '', b = ''] = twins;
  expect(unknown.get(a)).toBeUndefined();
  unknown.set(a, NOT_FOUND, 0);
  expect([unknown.get(a), unknown.get(b)]).toEqual([NOT_FOUND, undefined]);
  unknown.set(b, FORBIDDEN, 0);
  expect([unknown.get(a), unknown.get(b)]).toEqual([undefined, FORBIDDEN]);
});

test('its time is counted from when Redis was asked', () => {
  let nowMs = 10;
  const unknown = new NegativeCache(
    10,
    TTL_MS,
    clockAt(() => nowMs),
  );
  const [a = ''] = twins;
  unknown.set(a, NOT_FOUND, 4);
  nowMs = 4 + TTL_MS;
  expect(unknown.get(a)).toBe(NOT_FOUND);
  nowMs++;
  expect(unknown.get(a)).toBeUndefined();
});

test('remembers as many as it has room for', () => {
  const unknown = new NegativeCache(
    10_000,
    TTL_MS,
    clockAt(() => 0),
  );
  const many = Array.from({ length: 1000 }, (_, n) => digestOf(`many ${n}`));
  for (const digest of many) unknown.set(digest, NOT_FOUND, 0);
  expect(many.filter((digest) => unknown.get(digest) === NOT_FOUND).length).toBeGreaterThan(900);
});

test('places go by three bytes of the digest', () => {
  const unknown = new NegativeCache(
    65_537,
    TTL_MS,
    clockAt(() => 0),
  );
  const tail = digestOf('tail').slice(3);
  const apart = ['\0\0\0', '\x01\0\0', '\0\x01\0', '\0\0\x01'].map((head) => head + tail);
  for (const digest of apart) unknown.set(digest, FORBIDDEN, 0);
  expect(apart.map((digest) => unknown.get(digest))).toEqual(apart.map(() => FORBIDDEN));
});
