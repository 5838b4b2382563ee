import { describe, expect, test } from 'vitest';
import {
  type Credential,
  type CredentialSource,
  clientIpFaults,
  credentialOf,
  credentialSettings,
  type HeaderLines,
  keyHeaders,
  withoutKey,
  withoutKeyCookies,
} from '../../../../verifier/doors/http/credentials.ts';

const MISSING: Credential = { fault: 'KEY_MISSING' };
const AMBIGUOUS: Credential = { fault: 'KEY_AMBIGUOUS' };
const of = (headers: HeaderLines, target?: string, sources: CredentialSource[] = ['bearer', 'x-api-key']) =>
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
    for (const line of ['Basic dTpw', 'Bearer', 'Bearer  ', 'xBearer k2', 'Basic Bearer k2', ''])
      expect(of({ ...bearer(line), 'x-api-key': ['k1'] })).toEqual({ key: 'k1' });
  });

  test('never beside one that nobody understands', () => {
    const lines = ['Bearer\tk2', 'Bearer:k2', 'Bearer: k2', 'k2', 'Bearerk2', ' k2', 'Basic\tk2', 'Token'];
    for (const line of lines) {
      for (const source of ['bearer', 'basic'] as const) {
        expect([line, of(bearer(line), undefined, [source])]).toEqual([line, { key: '\ufffd' }]);
        const both = of({ ...bearer(line), 'x-api-key': ['k1'] }, undefined, [source, 'x-api-key']);
        expect([line, both]).toEqual([line, AMBIGUOUS]);
      }
      expect(of({ ...bearer(line), 'x-api-key': ['k1'] }, undefined, ['x-api-key'])).toEqual({ key: 'k1' });
    }
    expect(of(bearer('Bearer \u00a0k2'))).toEqual({ key: '\ufffd' });
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
    for (const headers of [{}, bearer(''), bearer('Bearer'), { 'x-api-key': [''] }])
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

const base64 = (text: string) => Buffer.from(text, 'latin1').toString('base64');

describe('Authorization: Basic', () => {
  const basic = (...lines: string[]) => of(bearer(...lines), undefined, ['basic']);
  test('has the key as user name or as password', () => {
    for (const text of ['k1:', ':k1', 'k1:k1'])
      for (const scheme of ['Basic', 'basic', 'BASIC  '])
        expect(basic(`${scheme} ${base64(text)}`)).toEqual({ key: 'k1' });
    expect(basic(`Basic ${base64(':a:b')}`)).toEqual({ key: 'a:b' });
    expect(basic(`Basic ${base64('k1:').replace(/=+$/, '')}`)).toEqual({ key: 'k1' });
  });

  test('has no two, and not another scheme beside it', () => {
    expect(basic(`Basic ${base64('k1:k2')}`)).toEqual(AMBIGUOUS);
    expect(basic(`Basic ${base64('k1:')}`, `Basic ${base64('k1:')}`)).toEqual(AMBIGUOUS);
    expect(basic(`Basic ${base64('k1:')}`, 'Bearer k1')).toEqual(AMBIGUOUS);
    const [line] = [`Basic ${base64('k1:')}`];
    for (const [apiKey, found] of [
      ['k1', { key: 'k1' }],
      ['k2', AMBIGUOUS],
    ] as const)
      expect(of({ ...bearer(line), 'x-api-key': [apiKey] }, undefined, ['x-api-key', 'basic'])).toEqual(
        found,
      );
    for (const other of ['Bearer k1', 'Basic', 'Basic ', `Basic ${base64(':')}`, '', 'Basics azE6'])
      expect(basic(other)).toEqual(MISSING);
    expect(of(bearer(line))).toEqual(MISSING);
  });

  test('that nobody can read is a key that nobody has', () => {
    for (const token of [
      'k1',
      '***',
      'azE6!',
      'azE6 azE6',
      'a',
      base64('k1'),
      'azE6\u00e9',
      '_-_-',
      'azE6=x',
    ])
      expect([token, basic(`Basic ${token}`)]).toEqual([token, { key: '\ufffd' }]);
  });
});

describe('a header or a cookie of a name that the team chose', () => {
  const own: CredentialSource[] = ['bearer', 'header:apikey', 'cookie:k'];
  const from = (headers: HeaderLines) => of(headers, undefined, own);
  test('has the key', () => {
    expect(from({ apikey: ['k1'] })).toEqual({ key: 'k1' });
    for (const cookie of ['k=k1', 'a=1; k=k1', 'a=1;k = k1 ;b', 'k="k1"; K=k2; ak=k2'])
      expect(from({ cookie: [cookie] })).toEqual({ key: 'k1' });
    expect(from({ cookie: ['a=1', 'k=k1', 'b=1'] })).toEqual({ key: 'k1' });
    expect(from({ cookie: ['k=k1'], apikey: ['k1'], ...bearer('Bearer k1') })).toEqual({ key: 'k1' });
    expect(from({ cookie: ['k=k%2B%3d1'] })).toEqual({ key: 'k+=1' });
    for (const value of ['%zz', '%', '%c3%28', '\u00a0k1\u00a0'])
      expect(from({ cookie: [`k=\t${value} `] })).toEqual({ key: value });
    for (const cookie of ['', 'k', 'k=', 'K=k1', 'a=k=k1', '\u00a0k=k1', 'k\u00a0=k1'])
      expect(from({ cookie: [cookie] })).toEqual(MISSING);
    expect(from({ 'x-api-key': ['k1'] })).toEqual(MISSING);
  });

  test('has no second', () => {
    for (const headers of [
      { apikey: ['k1', 'k1'] },
      { cookie: ['k=k1; k=k1'] },
      { cookie: ['k=k1', 'k=k1'] },
      { cookie: ['k=k1; k ='] },
      { cookie: ['k=k1'], apikey: ['k2'] },
      { cookie: ['k=k1'], ...bearer('Bearer k2') },
      { apikey: ['k1'], ...bearer('Bearer k2') },
    ])
      expect(from(headers)).toEqual(AMBIGUOUS);
  });
});

describe('CREDENTIAL_SOURCES', () => {
  test('names no header with the address of the client', () => {
    const faults = (CLIENT_IP_HEADER: string) =>
      clientIpFaults({ CLIENT_IP_HEADER, CREDENTIAL_SOURCES: ['header:who'] });
    expect([faults(''), faults('x-client-ip')]).toEqual([[], []]);
    expect(faults('Who')).toEqual([
      'CREDENTIAL_SOURCES: header:Who is CLIENT_IP_HEADER, which has an address and no key',
    ]);
    expect(faults('a b')).toEqual([
      expect.stringContaining('CLIENT_IP_HEADER: must be the name of a header'),
    ]);
  });

  const { parse } = credentialSettings.CREDENTIAL_SOURCES;
  test('takes places of a name', () => {
    expect(parse(' bearer , header:ApiKey,cookie:__Host-Key,basic,header:X-API-Key,header:apikey')).toEqual([
      ...['bearer', 'header:apikey', 'cookie:__Host-Key', 'basic', 'x-api-key'],
    ]);
    expect(parse('header:a_b.c')).toEqual(['header:a_b.c']);
  });

  test.each([
    ['token', '"token" is not allowed'],
    ['Bearer', '"Bearer" is not allowed'],
    ['query:key', '"query:key" is not allowed'],
    ['header:', 'must be the name of a header'],
    ['header:a b', 'must be the name of a header'],
    ['header:a:b', 'must be the name of a header'],
    ['header:a\r\nb', 'must be the name of a header'],
    ['header:schlüssel', 'must be the name of a header'],
    [`header:${'a'.repeat(101)}`, 'of at most 100 characters'],
    ['cookie:a;b', 'must be the name of a cookie'],
    ['cookie:a=b', 'must be the name of a cookie'],
    ['cookie:', 'must be the name of a cookie'],
    ...'Host Content-Length X-Forwarded-For X-Forwarded Forwarded Connection Transfer-Encoding Cookie Authorization X-Key-Id X_Key_Id Origin X-Original-URI Proxy-Authorization X-Request-Id Accept TE'
      .split(' ')
      .map((name) => [`header:${name}`, 'has a meaning of its own']),
    [Array.from({ length: 9 }, (_, i) => `header:a${i}`).join(), 'has 9 places'],
  ])('refuses %s', (value, message) => {
    expect(() => parse(value as string)).toThrow(message as string);
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

  test('has its value decoded once', () => {
    for (const [value, key] of [
      ['%6b1', 'k1'],
      ['a%2Bb%2f%3D', 'a+b/='],
      ['a+b=', 'a+b='],
      ['%2561', '%61'],
      ...['%zz', '%', '%c3%28', '%61%'].map((invalid) => [invalid, invalid] as const),
    ] as const)
      expect(query(`/a?%61pi_key=${value}`)).toEqual({ key });
    expect(of(bearer('Bearer k1'), '/a?api_key=%6b1', ['bearer', 'query'])).toEqual({ key: 'k1' });
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
    const all: CredentialSource[] = ['bearer', 'x-api-key', 'query', 'basic', 'header:shop_key', 'cookie:k'];
    const holds = (name: string, value: string) => all.filter((source) => keyHeaders([source])(name, value));
    for (const value of ['Bearer k1', 'bearer', 'BEARER,x', 'Bearer  '])
      expect(holds('authorization', value)).toEqual(['bearer']);
    for (const value of ['Basic Bearer', 'basic', 'BASIC\tx'])
      expect(holds('authorization', value)).toEqual(['basic']);
    for (const value of ['Bearers k1', 'xbearer k', 'Basics', ''])
      expect(holds('authorization', value)).toEqual([]);
    expect(holds('x-api-key', '')).toEqual(['x-api-key']);
    expect(holds('x-api-keys', 'Bearer k1')).toEqual([]);
    expect(holds('shop-key', 'k1')).toEqual(['header:shop_key']);
    expect(keyHeaders(all)('authorization', 'Bearer k1')).toBe(true);
  });

  test('a key cookie, and sees all other cookies', () => {
    const without = (line: string) => withoutKeyCookies(line, ['cookie:k', 'cookie:__Host-k']);
    expect(without('k=1')).toBe('');
    expect(without('a=1; k=2; b=3;k = 4; __Host-k=5')).toBe('a=1; b=3');
    expect(without(' k="1"; a=k=1')).toBe('a=k=1');
    for (const line of ['', 'k', 'K=1', 'ak=1; a=1', '=k', 'a="x; b=1', '\u00a0k=1'])
      expect(without(line)).toBe(line);
  });
});
