import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  digestFrom,
  digestOf,
  generateId,
  generateKey,
  hashSecret,
  isWellFormed,
  secretHashFrom,
  startOf,
} from '../../../shared/rules/key-format.ts';

const prefix = fc.option(fc.stringMatching(/^[A-Za-z0-9_]{1,16}$/), { nil: undefined });
const byteLength = fc.integer({ min: 16, max: 255 });

describe('a generated key', () => {
  test('is well-formed and as long as its kind', () => {
    fc.assert(
      fc.property(prefix, byteLength, (p, bytes) => {
        const key = generateKey(bytes, p);
        expect(isWellFormed(key)).toBe(true);
        expect(key.length).toBeLessThanOrEqual(512);
        expect(key.startsWith(p === undefined ? '' : `${p}_`)).toBe(true);
        expect(key.length).toBe(generateKey(bytes, p).length);
        expect(generateKey(bytes, p)).not.toBe(key);
      }),
    );
  });

  test('is refused with a wrong or swapped character', () => {
    fc.assert(
      fc.property(prefix, fc.nat(), fc.constantFrom(...'0aZ_9 é'), (p, at, other) => {
        const key = generateKey(16, p);
        const i = at % key.length;
        const changed = key.slice(0, i) + other + key.slice(i + 1);
        if (changed !== key) expect(isWellFormed(changed)).toBe(false);
        const j = at % (key.length - 1);
        const swapped = key.slice(0, j) + key[j + 1] + key[j] + key.slice(j + 2);
        if (swapped !== key) expect(isWellFormed(swapped)).toBe(false);
      }),
      { numRuns: 1000 },
    );
  });

  test('is refused with an unknown prefix', () => {
    for (const wrong of ['', '!', 'é', 'my app', 'my-app', 'x'.repeat(17)])
      expect(isWellFormed(generateKey(16, wrong)), wrong).toBe(false);
  });

  test('a listing shows the prefix and four characters, too few to guess the secret', () => {
    expect(startOf(generateKey(16, 'my_app'))).toMatch(/^my_app_[0-9A-Za-z]{4}$/);
    expect(startOf(generateKey(16))).toMatch(/^[0-9A-Za-z]{4}$/);
  });
});

test('no text makes the format check throw', () => {
  fc.assert(fc.property(fc.string({ unit: 'binary', maxLength: 600 }), (text) => void isWellFormed(text)));
  expect(isWellFormed('')).toBe(false);
});

test('keeps of a secret only its SHA-256', () => {
  expect(hashSecret('abc')).toBe(
    Buffer.from('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad', 'hex').toString(
      'base64url',
    ),
  );
});

test('ids sort by creation, and all differ', () => {
  fc.assert(
    fc.property(fc.nat(2 ** 42), fc.nat(2 ** 42), (a, b) => {
      const [one, two] = [generateId('key', Math.min(a, b)), generateId('key', Math.max(a, b))];
      if (a !== b) expect(one < two).toBe(true);
      expect(one).not.toBe(two);
      expect(one).toMatch(/^key_[0-9A-Za-z]{20}$/);
    }),
  );
});

test('both forms of a digest convert', () => {
  fc.assert(
    fc.property(fc.string(), (secret) => {
      expect(digestFrom(hashSecret(secret))).toBe(digestOf(secret));
      expect(secretHashFrom(digestOf(secret))).toBe(hashSecret(secret));
    }),
  );
});

test('draws nothing twice, at the end of bytes too', () => {
  const drawn = Array.from({ length: 1000 }, (_, i) => [
    generateKey(i % 10 === 0 ? 255 : 16),
    generateId('key', 1),
  ]);
  expect(new Set(drawn.flat()).size).toBe(2000);
});
