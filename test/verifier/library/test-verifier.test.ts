import { expect, test } from 'vitest';
import { VerifierError } from '../../../verifier/library/key-verifier.ts';
import { createTestVerifier, type TestKeyState } from '../../../verifier/library/test-verifier.ts';

test.each<[TestKeyState, string, object]>([
  ['valid', 'VALID', { valid: true, enabled: true, keyId: 'key_1' }],
  ['disabled', 'DISABLED', { enabled: false, keyId: 'key_1' }],
  ['expired', 'EXPIRED', { enabled: true }],
  ['insufficientPermissions', 'INSUFFICIENT_PERMISSIONS', { keyId: 'key_1' }],
  ['rateLimited', 'RATE_LIMITED', { ratelimits: [{ name: 'default', exceeded: true, remaining: 0 }] }],
  ['usageExceeded', 'USAGE_EXCEEDED', { keyId: 'key_1' }],
  ['forbidden', 'FORBIDDEN', {}],
  ['notFound', 'NOT_FOUND', {}],
])('a key that is %s gets %s', async (state, code, fields) => {
  const verifier = createTestVerifier({ key: { state, keyId: 'key_1', meta: { plan: 'pro' } } });
  await verifier.ready();
  const verdict = verifier.decide('key');
  expect(verdict).toMatchObject({ valid: code === 'VALID', code, ...fields });
  // The end of a window is a moment from now on, another at each question.
  expect(await verifier.verify('key')).toEqual({
    ...verdict,
    ...(code === 'RATE_LIMITED' ? { ratelimits: [expect.objectContaining({ name: 'default' })] } : {}),
  });
  expect(verifier.decide('another')).toEqual({ valid: false, code: 'NOT_FOUND' });
});

test('counts permissions and credits as a real one', () => {
  const verifier = createTestVerifier({
    a: { apiId: 'shop', permissions: ['read'], remaining: 3 },
    old: { expires: Date.now() - 1 },
  });
  const codeOf = (key: string, options = {}) => verifier.decide(key, options)?.code;
  expect(codeOf('a', { apiId: 'other' })).toBe('FORBIDDEN');
  expect(codeOf('a', { permissions: 'read AND write' })).toBe('INSUFFICIENT_PERMISSIONS');
  expect(codeOf('a', { permissions: { or: ['read', 'write'] }, remaining: { cost: 2 } })).toBe('VALID');
  expect(verifier.decide('a')).toMatchObject({ code: 'VALID', remaining: 0 });
  expect(codeOf('a')).toBe('USAGE_EXCEEDED');
  expect(codeOf('a', { remaining: { cost: 0 } })).toBe('VALID');
  expect(codeOf('old')).toBe('EXPIRED');
  expect(verifier.questions.map(({ key }) => key)).toEqual(['a', 'a', 'a', 'a', 'a', 'a', 'old']);
  expect(() => verifier.decide('a', { apiId: '' })).toThrow('apiId: must match');
  expect(() => verifier.set('a', 'broken' as TestKeyState)).toThrow(
    'state: must be one of valid, concurrencyExceeded',
  );
});

test('acts as if Redis were gone, or it were closed', async () => {
  const verifier = createTestVerifier({ key: 'unavailable' });
  expect(verifier.decide('key')).toBeUndefined();
  await expect(verifier.verify('key')).rejects.toThrow(VerifierError);
  verifier.set('key', 'valid');
  expect(verifier.decide('key')?.code).toBe('VALID');
  await verifier.close();
  await expect(verifier.verify('key')).rejects.toMatchObject({ code: 'CLOSED' });
  await expect(verifier.ready()).rejects.toMatchObject({ code: 'CLOSED' });
});

test('a watch ends once its key is not valid', async () => {
  const verifier = createTestVerifier({ a: 'valid', b: { remaining: 0 }, c: 'valid', d: 'disabled' });
  const until = new AbortController();
  const watches = ['a', 'b', 'c', 'd'].map((key) => verifier.watch(key, { signal: until.signal }));
  const reasons = () => watches.map(({ reason }) => (reason as { code?: string } | undefined)?.code);
  expect(reasons()).toEqual([undefined, undefined, undefined, 'DISABLED']);
  verifier.set('a', 'disabled');
  verifier.set('b', { remaining: 1 });
  expect(reasons()).toEqual(['DISABLED', undefined, undefined, 'DISABLED']);
  verifier.set('b', 'unavailable');
  until.abort();
  verifier.set('c', 'disabled');
  expect(reasons()).toEqual(['DISABLED', 'SERVICE_UNAVAILABLE', undefined, 'DISABLED']);
});
