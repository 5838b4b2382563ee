import { describe, expect, test } from 'vitest';
import {
  type Credential,
  credentialOf,
  type HeaderLines,
  mayHoldKey,
  type Source,
  withoutKey,
} from '../../../verifier/http/credentials.ts';

const MISSING: Credential = { fault: 'KEY_MISSING' };
const AMBIGUOUS: Credential = { fault: 'KEY_AMBIGUOUS' };
const of = (headers: HeaderLines, target?: string, sources: Source[] = ['bearer', 'x-api-key']) =>
  credentialOf(headers, target, sources);
const bearer = (...lines: string[]): HeaderLines => ({ authorization: lines });

describe('a key is found', () => {
  test('in Authorization, in any case and spacing', () => {
    for (const line of ['Bearer k1', 'bearer k1', 'BEARER   k1'])
      expect(of(bearer(line))).toEqual({ key: 'k1' });
  });

  test('in X-Api-Key as it stands', () => {
    expect(of({ 'x-api-key': ['Bearer k1'] })).toEqual({ key: 'Bearer k1' });
  });

  test('in X-Api-Key beside another Authorization', () => {
    for (const line of [
      'Basic dTpw',
      'Bearer',
      'Bearer  ',
      'Bearer\tk2',
      'xBearer k2',
      'Basic Bearer k2',
      '',
    ])
      expect(of({ ...bearer(line), 'x-api-key': ['k1'] })).toEqual({ key: 'k1' });
  });

  test('in both sources when they say the same', () => {
    expect(of({ ...bearer('Bearer k1'), 'x-api-key': ['k1'] })).toEqual({ key: 'k1' });
  });

  test('in an enabled query, under its name only', () => {
    expect(of({}, '/a?api_key=k1')).toEqual(MISSING);
    expect(of({}, '/a?b=1&api_key=k1&c', ['query'])).toEqual({ key: 'k1' });
    for (const target of ['/a', '/api_key=k1', '/a?API_KEY=k1', '/a?xapi_key=k1', undefined])
      expect(of({}, target, ['query'])).toEqual(MISSING);
  });

  test('in enabled sources only: a JWT is no matter', () => {
    expect(of({ ...bearer('Bearer a.jwt'), 'x-api-key': ['k1'] }, undefined, ['x-api-key'])).toEqual({
      key: 'k1',
    });
    expect(of(bearer('Bearer a.jwt'), undefined, ['x-api-key'])).toEqual(MISSING);
  });
});

describe('no key is chosen', () => {
  test('where there is none', () => {
    for (const headers of [{}, bearer(''), bearer('Bearer'), bearer('Bearerk1'), { 'x-api-key': [''] }])
      expect(of(headers)).toEqual(MISSING);
  });

  test('where a source comes twice', () => {
    for (const [one, two] of [
      ['k1', 'k2'],
      ['k1', 'k1'],
      ['', 'k1'],
    ] as const) {
      expect(of({ 'x-api-key': [one, two] })).toEqual(AMBIGUOUS);
      expect(of({}, `/?api_key=${one}&api_key=${two}`, ['query'])).toEqual(AMBIGUOUS);
    }
    expect(of(bearer('Bearer k1', 'Bearer k1'))).toEqual(AMBIGUOUS);
    expect(of(bearer('Basic dTpw', 'Bearer k1'))).toEqual(AMBIGUOUS);
  });

  test('where two enabled sources differ', () => {
    expect(of({ ...bearer('Bearer k1'), 'x-api-key': ['k2'] })).toEqual(AMBIGUOUS);
    expect(of({ 'x-api-key': ['k1'] }, '/?api_key=k2', ['x-api-key', 'query'])).toEqual(AMBIGUOUS);
  });

  test('where a proxy joined two lines', () => {
    expect(of({ 'x-api-key': ['k1, k2'] })).toEqual({ key: 'k1, k2' });
    expect(of(bearer('Bearer k1, Bearer k1'))).toEqual({ key: 'k1, Bearer k1' });
  });
});

describe('a parameter under an encoded name', () => {
  const query = (target: string) => of({}, target, ['query']);
  const NAMES = ['%61pi_key', 'api%5Fkey', 'api%5fkey', '%61%70%69%5f%6b%65%79'];
  const OTHERS =
    '%zz % %c3%28 %00 api_key%00 %00api_key api_key% %61pi_key%zz %2561pi_key api_key%3d %41PI_KEY api_k%e';

  test('is a key, and one too many with another', () => {
    for (const name of NAMES) {
      expect(query(`/a?b=%&${name}=k1&c`)).toEqual({ key: 'k1' });
      for (const other of ['api_key', name]) {
        expect(query(`/a?${name}=k1&${other}=k1`)).toEqual(AMBIGUOUS);
        expect(query(`/a?${other}=k1&${name}=`)).toEqual(AMBIGUOUS);
      }
      expect(of(bearer('Bearer k1'), `/a?${name}=k2`, ['bearer', 'query'])).toEqual(AMBIGUOUS);
      expect(withoutKey(`/a?b=%&${name}=k1&c`, ['query'])).toBe('/a?b=%&c');
      expect(query(`/a?${name}`)).toEqual(MISSING);
    }
  });

  test('is none if it decodes to something else', () => {
    for (const name of OTHERS.split(' ')) {
      expect(query(`/a?${name}=k1`)).toEqual(MISSING);
      expect(withoutKey(`/a?${name}=k1&${name}`, ['query'])).toBe(`/a?${name}=k1&${name}`);
    }
  });

  test('has its value as it is spelt', () => {
    for (const value of ['%zz', '%', '%c3%28', '%00', 'a=%61', '%6b1'])
      expect(query(`/a?%61pi_key=${value}`)).toEqual({ key: value });
  });
});

describe('what is behind the proxy does not see', () => {
  test('a key parameter, and sees all the rest', () => {
    const without = (target: string) => withoutKey(target, ['bearer', 'query']);
    expect(without('/a?api_key=k1')).toBe('/a');
    expect(without('/a?b=1&api_key=k1&c=%20&&d')).toBe('/a?b=1&c=%20&&d');
    expect(without('/a?api_key=k1&api_key=')).toBe('/a');
    expect(without('?api_key=k1&b')).toBe('?b');
    for (const target of ['/a', '/a?', '/a?b', '/a?api_keys=1&xapi_key=k', '/api_key=k', '/a?API_KEY=k'])
      expect(without(target)).toBe(target);
    expect(withoutKey('/a?api_key=k1', ['bearer', 'x-api-key'])).toBe('/a?api_key=k1');
  });

  test('a key header, where that source is enabled', () => {
    const all: Source[] = ['bearer', 'x-api-key', 'query'];
    const holds = (name: string, value: string) => all.filter((source) => mayHoldKey(name, value, [source]));
    for (const value of ['Bearer k1', 'bearer', 'BEARER,x', 'Bearer  '])
      expect(holds('authorization', value)).toEqual(['bearer']);
    for (const value of ['Basic Bearer', 'Bearers k1', 'xbearer k', ''])
      expect(holds('authorization', value)).toEqual([]);
    expect(holds('x-api-key', '')).toEqual(['x-api-key']);
    expect(holds('x-api-keys', 'Bearer k1')).toEqual([]);
    expect(mayHoldKey('authorization', 'Bearer k1', all)).toBe(true);
  });
});
