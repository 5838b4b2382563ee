import { createLocalJWKSet, decodeJwt, decodeProtectedHeader, jwtVerify } from 'jose';
import { expect, test } from 'vitest';
import { TOKEN_ALGS, TokenKeys } from '../../../shared/tokens/token-keys.ts';

const [OLD, NEW] = ['old '.repeat(9), 'new '.repeat(9)];
const DAY_MS = 86_400_000;
/** The beginning of a day. */
const DAY = Date.UTC(2026, 10, 28);

/** The keys of one process, at a time. */
const at = (wallMs: number, ...secrets: readonly string[]) =>
  new TokenKeys({ TOKEN_KEY: secrets, TOKEN_ISSUER: 'keyfence' }, { wallMs: () => wallMs });

/** Whether a process that publishes `published` knows the signature of a token. */
const isKnown = (token: string, published: TokenKeys) =>
  jwtVerify(token, createLocalJWKSet(JSON.parse(published.jwks())), { currentDate: new Date(0) }).then(
    () => true,
    () => false,
  );

test('who has read the public keys knows every signature of the next two days', async () => {
  const published = at(DAY + DAY_MS - 1, OLD);
  for (const ahead of [1 - DAY_MS, 1, DAY_MS, 2 * DAY_MS])
    expect(await isKnown(at(DAY + DAY_MS - 1 + ahead, OLD).sign({}), published)).toBe(true);
  expect(await isKnown(at(DAY + 3 * DAY_MS, OLD).sign({}), published)).toBe(false);
});

test('a signature of yesterday is known today, and none of the day before', async () => {
  const token = at(DAY - 1, OLD).sign({});
  expect(await isKnown(token, at(DAY + DAY_MS - 1, OLD))).toBe(true);
  expect(await isKnown(token, at(DAY + DAY_MS, OLD))).toBe(false);
});

test('each day has another key, which is the same at all processes', async () => {
  const kids = (keys: TokenKeys) => JSON.parse(keys.jwks()).keys.map(({ kid }: { kid: string }) => kid);
  const keys = at(DAY, OLD);
  expect(new Set(kids(keys)).size).toBe(8);
  expect(kids(at(DAY + DAY_MS - 1, OLD))).toEqual(kids(keys));
});

test.each(['EdDSA', 'ES256'] as const)(
  'every process publishes the keys of tokens with %s, whatever it signs with',
  async (alg) => {
    const keys = (TOKEN_ALG: typeof alg) =>
      new TokenKeys({ TOKEN_KEY: [OLD], TOKEN_ISSUER: 'keyfence', TOKEN_ALG }, { wallMs: () => DAY });
    const token = keys(alg).sign({ sub: 'k' });
    expect(decodeProtectedHeader(token)).toMatchObject({ alg, typ: 'JWT' });
    for (const other of TOKEN_ALGS) expect(await isKnown(token, keys(other as typeof alg))).toBe(true);
    expect(await isKnown(token, at(DAY, NEW))).toBe(false);
  },
);

test('a token says when it was issued, by a clock that is late, and its own name', () => {
  const [first, second] = [1, 2].map(() => decodeJwt(at(DAY + 999, OLD).sign({ sub: 'k' })));
  expect(first).toMatchObject({ iss: 'keyfence', sub: 'k', iat: DAY / 1000 - 2 });
  expect(first?.jti).toMatch(/^[0-9a-f-]{36}$/);
  expect(second?.jti).not.toBe(first?.jti);
});

test('libraries find the keys by an issuer that is a URL', () => {
  const documentsOf = (TOKEN_ISSUER: string) =>
    new TokenKeys({ TOKEN_KEY: [OLD], TOKEN_ISSUER }, { wallMs: () => DAY }).documents();
  const found = documentsOf('https://keys.example.com/')['/.well-known/openid-configuration']?.();
  expect(JSON.parse(found ?? '')).toMatchObject({
    issuer: 'https://keys.example.com/',
    jwks_uri: 'https://keys.example.com/.well-known/jwks.json',
  });
  for (const issuer of ['keyfence', 'urn:keyfence'])
    expect(Object.keys(documentsOf(issuer))).toEqual(['/.well-known/jwks.json']);
});

test('a secret is replaced without a gap', async () => {
  const steps = [[OLD], [OLD, NEW], [NEW, OLD], [NEW]].map((secrets) => at(DAY, ...secrets));
  for (const [i, step] of steps.entries()) {
    const token = step.sign({});
    for (const other of steps.slice(Math.max(0, i - 1), i + 2))
      expect(await isKnown(token, other)).toBe(true);
  }
  expect(await isKnown(steps[0]?.sign({}) ?? '', at(DAY, NEW))).toBe(false);
});
