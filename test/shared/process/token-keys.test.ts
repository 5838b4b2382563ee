import { createLocalJWKSet, jwtVerify } from 'jose';
import { expect, test } from 'vitest';
import { TokenKeys } from '../../../shared/process/token-keys.ts';

const [OLD, NEW] = ['old '.repeat(9), 'new '.repeat(9)];
const MINUTE_MS = 60_000;
/** The beginning of a day. */
const DAY = Date.UTC(2026, 10, 28);

/** The keys of one process, at a time. */
const at = (wallMs: number, ...secrets: readonly string[]) =>
  new TokenKeys({ TOKEN_KEY: secrets, TOKEN_ISSUER: 'keyfence' }, { wallMs: () => wallMs });

/** Whether a process that publishes `published` knows the signature of a token. */
const isKnown = (token: string, published: TokenKeys) =>
  jwtVerify(token, createLocalJWKSet(JSON.parse(published.jwks())), { algorithms: ['EdDSA'] }).then(
    () => true,
    () => false,
  );

test('a day has a key, which is published 15 minutes around it', async () => {
  const [first, last] = [at(DAY, OLD).sign({ sub: 'k' }), at(DAY + 1440 * MINUTE_MS - 1, OLD).sign({})];
  expect(await isKnown(last, at(DAY, OLD))).toBe(true);
  expect(await isKnown(first, at(DAY - 14 * MINUTE_MS, OLD))).toBe(true);
  expect(await isKnown(first, at(DAY - 16 * MINUTE_MS, OLD))).toBe(false);
  expect(await isKnown(last, at(DAY + 1454 * MINUTE_MS, OLD))).toBe(true);
  expect(await isKnown(last, at(DAY + 1456 * MINUTE_MS, OLD))).toBe(false);
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
