import { expect, test } from 'vitest';
import type { Clock } from '#shared/process/clock.ts';
import {
  AnonymousLimit,
  anonymousFaults,
  anonymousSettings,
} from '../../../../verifier/doors/http/anonymous-limit.ts';

let nowMs = 0;
const clock = { monotonicMs: () => nowMs, wallMs: () => 1_700_000_000_000 + nowMs } as Clock;
const limitOf = (limit: number, durationMs: number) => {
  nowMs = 12 * durationMs;
  return new AnonymousLimit({ limit, durationMs }, clock);
};
const isRefused = (limit: AnonymousLimit, address: string | undefined) => limit.take(address) !== undefined;

test('each address has its own in each window', () => {
  const limit = limitOf(2, 10_000);
  const take = () => ['192.0.2.1', '192.0.2.2'].map((address) => isRefused(limit, address));
  expect([take(), take()].flat()).not.toContain(true);
  nowMs += 7500;
  expect(take()).toEqual([true, true]);
  expect(limit.take('192.0.2.1')).toMatchObject({ code: 'RATE_LIMITED', spending: { retryMs: 2500 } });
  nowMs += 2500;
  expect(take()).toEqual([false, false]);
});

test('a network of IPv6 is one, and so is no address', () => {
  const limit = limitOf(1, 10_000);
  expect(isRefused(limit, '2001:db8::1')).toBe(false);
  expect(isRefused(limit, '2001:db8:0:0:ffff::2')).toBe(true);
  expect(isRefused(limit, '2001:db8:0:1::1')).toBe(false);
  expect(isRefused(limit, '::ffff:192.0.2.1')).toBe(false);
  expect(isRefused(limit, '192.0.2.1')).toBe(true);
  expect(isRefused(limit, undefined)).toBe(false);
  expect(isRefused(limit, undefined)).toBe(true);
});

test('forgets addresses beyond its maximum', () => {
  const limit = limitOf(1, 10_000);
  const address = (i: number) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`;
  for (let i = 0; i <= 50_000; i++) limit.take(address(i));
  expect(isRefused(limit, address(50_000))).toBe(true);
  expect(isRefused(limit, address(1))).toBe(true);
  expect(isRefused(limit, address(0))).toBe(false);
});

test.each([
  '60',
  '60/',
  '/60000',
  '0/60000',
  '60/999',
  '60/86400001',
  '1000001/1000',
  '-1/60000',
  '60/60s',
  '6e1/60000',
  '1.5/1000',
])('ANONYMOUS_LIMIT=%s stops the start', (value) => {
  expect(() => anonymousSettings.ANONYMOUS_LIMIT.parse(value)).toThrow(`"${value}" is not allowed`);
});

test('ANONYMOUS_LIMIT needs addresses', () => {
  const bound = anonymousSettings.ANONYMOUS_LIMIT.parse('60/60000');
  expect(bound).toEqual({ limit: 60, durationMs: 60_000 });
  const faults = (CLIENT_IP_HEADER: string, EXT_AUTHZ_GRPC_PORT?: number) =>
    anonymousFaults({ ANONYMOUS_LIMIT: bound, CLIENT_IP_HEADER, EXT_AUTHZ_GRPC_PORT });
  expect(faults('')).toEqual([expect.stringContaining('ANONYMOUS_LIMIT: needs CLIENT_IP_HEADER')]);
  expect([...faults('x-client-ip'), ...faults('', 3002)]).toEqual([]);
  expect(anonymousSettings.ANONYMOUS_LIMIT.parse('')).toBeUndefined();
});
