import fc from 'fast-check';
import { expect, test } from 'vitest';
import { bearerKey, credentialOf } from '../../../../verifier/doors/http/credentials.ts';
import { isIdentityHeader } from '../../../../verifier/doors/http/gateway-answer.ts';
import { hasIdentity, loneBearer, USUAL_HEADERS } from '../../../../verifier/library/guards/rules.ts';

const NAMES = [
  'authorization',
  'Authorization',
  'AUTHORIZATION',
  'x-api-key',
  'X-Api-Key',
  'authorisation1',
  'host',
  'x-apikey1',
];
const KEYS = ['k1', 'k2', ' k1', '\u00a0k1', '\u00e4', '\tk1', ''];
const lines = fc.array(
  fc.tuple(
    fc.constantFrom(...NAMES),
    fc.oneof(
      fc.constantFrom(
        ...KEYS.flatMap((key) =>
          ['Bearer ', 'bearer ', 'Bearer', 'Basic ', ''].map((scheme) => scheme + key),
        ),
      ),
      fc.string({ unit: fc.integer({ min: 0x20, max: 0xff }).map((code) => String.fromCharCode(code)) }),
    ),
  ),
  { maxLength: 4 },
);

test('the quick look finds the key, or leaves it', () => {
  fc.assert(
    fc.property(lines, (pairs) => {
      const rawHeaders = pairs.flat();
      const key = loneBearer(rawHeaders);
      if (key !== undefined)
        expect(credentialOf(USUAL_HEADERS.read(rawHeaders), undefined, ['bearer', 'x-api-key'])).toEqual({
          key,
        });
    }),
    { numRuns: 2000 },
  );
});

test('the quick look finds keys as most send them', () => {
  for (const name of NAMES.slice(0, 3)) {
    expect(loneBearer(['Host', 'x', name, 'Bearer k1', 'Accept', '*/*'])).toBe('k1');
    expect(loneBearer([name, 'Bearer k1', name, 'Bearer k1'])).toBeUndefined();
    expect(loneBearer([name, 'Bearer k1', 'X-API-KEY', 'k1'])).toBeUndefined();
  }
  for (const line of ['Bearer', 'Bearer ', 'Basic k1', ''])
    expect(loneBearer(['Authorization', line])).toBeUndefined();
});

test('reads an Authorization line by its pattern', () => {
  const text = fc.string({
    unit: fc.integer({ min: 0x20, max: 0xff }).map((code) => String.fromCharCode(code)),
  });
  const scheme = fc.constantFrom('Bearer ', 'Bearer  ', 'bearer ', 'BEARER ', 'Bearer', 'Basic ');
  fc.assert(
    fc.property(scheme, text, (start, end) => {
      const [, key = expect.stringMatching(/^\ufffd?$/)] = /^bearer +(\S.*)$/i.exec(start + end) ?? [];
      expect(bearerKey(start + end)).toEqual(key);
    }),
    { numRuns: 2000 },
  );
});

test('a name says whose key it is by its pattern', () => {
  const name = fc.oneof(
    fc.string({ maxLength: 8 }),
    fc.stringMatching(/^[xX][-_.a]?[kK][eE][yY][-_.a]?[a-z]{0,3}$/),
  );
  fc.assert(
    fc.property(fc.array(name, { maxLength: 3 }), (names) => {
      expect(hasIdentity(names.flatMap((each) => [each, 'X-Key-Id']))).toBe(names.some(isIdentityHeader));
    }),
    { numRuns: 2000 },
  );
});
