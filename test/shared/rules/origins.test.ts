import { describe, expect, test } from 'vitest';
import { Origins, originFault, originOf, originsText } from '#shared/rules/origins.ts';

const of = (...origins: string[]) => new Origins(originsText(origins));

describe('a list of origins', () => {
  test('matches exactly, in any spelling', () => {
    const list = of(
      'HTTPS://App.Example.com:443',
      'http://localhost:3000',
      'capacitor://localhost',
      'http://[::1]:80',
    );
    for (const origin of [
      'https://app.example.com',
      'https://app.example.com:443',
      'https://APP.example.com/path?query#x',
      'http://localhost:3000/',
      'capacitor://localhost',
      'http://[::1]',
    ])
      expect([origin, list.has(origin)]).toEqual([origin, true]);
    for (const origin of [
      'http://app.example.com',
      'https://app.example.com:8443',
      'https://app.example.com.evil.example',
      'https://evil.example/https://app.example.com',
      'https://app.example.com@evil.example',
      'https://evil.example#https://app.example.com',
      'https://x.app.example.com',
      'http://localhost',
      'null',
      '',
      'app.example.com',
      '//app.example.com',
      'https://*.example.com',
    ])
      expect([origin, list.has(origin)]).toEqual([origin, false]);
  });

  test('matches all below a wildcard, and not itself', () => {
    const list = of('https://*.example.com', 'http://*.dev.example:8080');
    for (const origin of ['https://a.example.com', 'https://a.b.example.com/x', 'http://a.dev.example:8080'])
      expect([origin, list.has(origin)]).toEqual([origin, true]);
    for (const origin of [
      'https://example.com',
      'https://.example.com',
      'https://evilexample.com',
      'https://a.example.com:8443',
      'http://a.example.com',
      'https://a.example.com.evil.example',
      'https://evil.example/.example.com',
      'https://evil.example?.example.com',
      'http://a.dev.example',
    ])
      expect([origin, list.has(origin)]).toEqual([origin, false]);
  });

  test('is stored in one form', () => {
    expect(originsText(['https://b.example:443', 'HTTPS://A.example', 'https://b.example'])).toBe(
      'https://a.example https://b.example',
    );
    expect(originOf('https://A.example:443/x')).toBe('https://a.example');
  });
});

test.each([
  ['*', 'must be an origin'],
  ['null', 'must be an origin'],
  ['app.example.com', 'must be an origin'],
  ['https://app.example.com/', 'must be an origin'],
  ['https://app.example.com/path', 'must be an origin'],
  ['https://a b', 'must be an origin'],
  ['https://', 'must be an origin'],
  ['https://a.*.example.com', 'must be an origin'],
  ['https://user@a.example', 'must be an origin'],
  ['https://a.example:65536', 'must be an origin'],
  ['https://a.example:', 'must be an origin'],
  ['https://größe.example', 'must be an origin'],
  ['*://a.example', 'must be an origin'],
  ['https://*', 'must be an origin'],
  ['https://*.com', 'must have two labels or more after *.'],
  ['https://*.localhost:80', 'must have two labels or more after *.'],
])('%s is no origin of a list', (text, fault) => {
  expect(originFault(text)).toContain(fault);
});
