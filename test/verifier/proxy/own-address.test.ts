import { expect, test } from 'vitest';
import { leadsTo } from '../../../verifier/proxy/upstream.ts';

test.each([
  ['http://127.0.0.1:8080', '127.0.0.1', true],
  ['http://localhost:8080', '127.0.0.1', true],
  ['http://127.0.0.1:8080', 'localhost', true],
  ['http://localhost:8080', 'localhost', true],
  ['http://[::1]:8080', '::1', true],
  ['http://127.0.0.1:8080', '0.0.0.0', true],
  ['http://[::1]:8080', '::', true],
  ['http://localhost:8080', '::', true],
  ['http://0.0.0.0:8080', '0.0.0.0', true],
  ['http://api.internal:8080', 'api.internal', true],
  ['http://[::1]:8080', '127.0.0.1', false],
  ['http://127.0.0.1:8080', '::1', false],
  ['http://localhost:8080', '10.0.0.1', false],
  ['http://api.internal:8080', '0.0.0.0', false],
  ['http://127.0.0.1:8081', '127.0.0.1', false],
])('notices a proxy to itself: %s at %s: %s', (url, host, isOurs) => {
  expect(leadsTo(new URL(url), host, 8080)).toBe(isOurs);
});

test.each([
  ['http://127.0.0.1', 80, true],
  ['https://127.0.0.1', 443, true],
  ['https://127.0.0.1', 80, false],
])('%s has the usual port of its scheme: %s, %s', (url, port, isOurs) => {
  expect(leadsTo(new URL(url), '127.0.0.1', port)).toBe(isOurs);
});
