import { describe, expect, test } from 'vitest';
import { configFaults } from '../../../verifier/config.ts';
import { verifierConfig } from '../../harness/config.ts';
import { address, ask, BEARER, call, post, restart, upstream, useProxy, wire } from './proxy-world.ts';

useProxy();

describe('a request that its key allows', () => {
  test('arrives with its identity, without its key', async () => {
    const spoofed = ['X-Key-Id: key_admin', 'x-key-role: admin', 'X_Key_Id: key_admin', 'X-KEY-META: {}'];
    const hop = ['Connection: keep-alive, X-Hop, X-Key-Name', 'X-Hop: 1', 'Keep-Alive: timeout=5'];
    const kept = ['Cookie: a=b', 'X-Twice: 1', 'X-Twice: 2', 'X-Forwarded-For: 10.0.0.9'];
    const response = await ask([
      BEARER,
      'X-Api-Key: good',
      ...spoofed,
      ...hop,
      ...kept,
      'X-Request-Id: mine-1',
    ]);
    expect(response).toMatchObject({ status: 200, body: 'ok' });
    expect(response.headers['server-timing']).toMatch(/^keyfence;dur=\d+\.\d\d$/);
    expect(upstream.seen[0]).toMatchObject({ method: 'GET', url: '/behind/orders/1?a=%20b', body: '' });
    expect(upstream.seen[0]?.rawHeaders).toEqual([
      ...['host', 'shop.example', 'connection', 'keep-alive'],
      ...['Cookie', 'a=b', 'X-Twice', '1', 'X-Twice', '2'],
      ...['X-Key-Id', 'key_good', 'X-Key-Api-Id', 'payments', 'X-Key-Name', '', 'X-Key-External-Id', ''],
      ...['X-Forwarded-For', '127.0.0.1', 'X-Forwarded-Proto', 'http', 'X-Request-Id', 'mine-1'],
    ]);
  });

  const SAID = [
    'Forwarded: for=10.0.0.9;proto=https',
    'X-Real-IP: 10.0.0.9',
    'X-Forwarded-For: 10.0.0.9',
    'X-Forwarded-Host: 10.0.0.9',
    'x-forwarded-proto: https',
    'True-Client-IP: 10.0.0.9',
    'Client-IP: 10.0.0.9',
    'X-Forwarded: 10.0.0.9',
    'Forwarded-For: 10.0.0.9',
    'Fastly-Client-IP: 10.0.0.9',
    'X-Original-Forwarded-For: 10.0.0.9',
    'X-Original-URL: /10.0.0.9',
  ];
  const SPELT = ['X_Forwarded_For: spelt', 'X_Real_IP: spelt', 'X.Forwarded.Host: spelt'];

  test('tells the API no claims of a client', async () => {
    expect((await ask([BEARER, ...SAID, ...SPELT])).status).toBe(200);
    const { rawHeaders, headers } = upstream.seen[0] ?? {};
    expect(rawHeaders?.join()).not.toMatch(/10\.0\.0\.9|spelt|https/);
    expect(headers).toMatchObject({ 'x-forwarded-for': '127.0.0.1', 'x-forwarded-proto': 'http' });
  });

  test('tells what TRUSTED_PROXIES say', async () => {
    await restart({ env: { TRUSTED_PROXIES: '10.0.0.0/8, 127.0.0.1' } });
    const named =
      'Connection: Forwarded, X-Real-IP, X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto, True-Client-IP';
    expect((await ask([BEARER, ...SAID, ...SPELT, named])).status).toBe(200);
    const { rawHeaders, headers } = upstream.seen[0] ?? {};
    expect(rawHeaders?.join()).not.toContain('spelt');
    expect(headers).toMatchObject({
      forwarded: 'for=10.0.0.9;proto=https',
      'x-real-ip': '10.0.0.9',
      'x-forwarded-for': '10.0.0.9, 127.0.0.1',
      'x-forwarded-host': '10.0.0.9',
      'x-forwarded-proto': 'https',
      'true-client-ip': '10.0.0.9',
    });
    await ask([BEARER]);
    expect(upstream.seen[1]?.headers).toMatchObject({ 'x-forwarded-proto': 'http' });
  });

  test('keeps its Host, whatever Connection names', async () => {
    const lines = [BEARER, 'Content-Type: text/plain', 'Content-Length: 2', 'X-Hop: 1'];
    expect(
      (await ask([...lines, 'Connection: host, Content-Type, content-length, x-hop'], 'ab')).status,
    ).toBe(200);
    const { headers, body } = upstream.seen[0] ?? {};
    expect(headers).toMatchObject({
      host: 'shop.example',
      'content-type': 'text/plain',
      'content-length': '2',
    });
    expect(headers).not.toHaveProperty('x-hop');
    expect(body).toBe('ab');
  });

  test('that Redis has to decide waits for it', async () => {
    expect((await ask(['X-Api-Key: remote-rich'])).status).toBe(200);
    expect(upstream.seen[0]?.headers).toMatchObject({
      'x-key-id': 'key_rich',
      'x-key-name': 'Zo%C3%AB%20"Z"',
      'x-key-external-id': 'user_1',
      'x-forwarded-for': '127.0.0.1',
    });
  });

  test('is told meta where that is switched on', async () => {
    await restart({ authz: { withMeta: true } });
    await ask(['X-Api-Key: rich']);
    expect(upstream.seen[0]?.headers['x-key-meta']).toBe('{"plan":"\\u65e5\\u672c"}');
  });

  test('has a token where that is switched on, never its own', async () => {
    await restart({ authz: { stamps: ['X-Key-Token'] } });
    for (const key of ['good', 'remote-rich', 'permitted'])
      await ask([`X-Api-Key: ${key}`, 'X-Key-Token: mine', 'X_Key_Token: mine', 'x-key-token: mine']);
    expect(upstream.seen.map(({ headersDistinct }) => headersDistinct['x-key-token'])).toEqual([
      ...[['token.of.good'], ['token.of.rich'], ['']],
    ]);
    expect(upstream.seen[0]?.rawHeaders).not.toContain('X_Key_Token');
    await restart({});
    await ask([BEARER, 'X-Key-Token: mine']);
    expect(upstream.seen.at(-1)?.headers).not.toHaveProperty('x-key-token');
  });

  test('loses the key of its query, and nothing else', async () => {
    await restart({ authz: { sources: ['query'] } });
    const targets = {
      '/a?x=1&api_key=good&y=%2f&y': '/behind/a?x=1&y=%2f&y',
      '/a?api_key=good': '/behind/a',
      '/a?%zz=%&%61pi%5Fkey=good&%c3%28=%00': '/behind/a?%zz=%&%c3%28=%00',
      '/a?&api_key=good': '/behind/a?',
    };
    for (const [target, wanted] of Object.entries(targets)) {
      expect((await ask([BEARER], '', `GET ${target} HTTP/1.1`)).status).toBe(200);
      const seen = upstream.seen.at(-1);
      expect([seen?.url, seen?.headers.authorization]).toEqual([wanted, 'Bearer good']);
    }
  });

  test('loses the key wherever it may be, and no more', async () => {
    await restart({ authz: { sources: ['basic', 'header:shop_key', 'cookie:k'] } });
    const own = ['X-Api-Key: own', 'Cookie: a=1; b=2'];
    const basic = `Authorization: Basic ${Buffer.from('good:').toString('base64')}`;
    for (const [lines, cookie] of [
      [[basic, ...own], 'a=1; b=2'],
      [['Shop_Key: good', 'Authorization: Bearer own', ...own], 'a=1; b=2'],
      [['X-Api-Key: own', 'Cookie: a=1; k=good; b=2'], 'a=1; b=2'],
      [['X-Api-Key: own', 'Cookie: k=good', 'Shop-Key: good', 'Shop_Key: good'], undefined],
    ] as const) {
      expect((await ask([...lines])).status).toBe(200);
      const { headers, rawHeaders } = upstream.seen.at(-1) ?? expect.unreachable();
      expect([headers['x-api-key'], headers.cookie]).toEqual(['own', cookie]);
      expect(headers.authorization).toBe(
        lines.includes('Authorization: Bearer own' as never) ? 'Bearer own' : undefined,
      );
      expect(rawHeaders.filter((text) => text !== 'key_good').join()).not.toContain('good');
    }
    const { length } = upstream.seen;
    for (const lines of [[basic, basic], ['Cookie: k=good; k=good'], ['Cookie: k=good', 'Shop_Key: rich']])
      expect((await ask(lines)).status).toBe(401);
    expect(upstream.seen).toHaveLength(length);
  });

  test('keeps an Authorization that is no key', async () => {
    await ask(['Authorization: Basic dTpw', 'X-Api-Key: good']);
    expect(upstream.seen[0]?.headers).toMatchObject({ authorization: 'Basic dTpw' });
    expect(upstream.seen[0]?.headers).not.toHaveProperty('x-api-key');
  });

  test('may have any method and path', async () => {
    const one = wire();
    upstream.handle = ({ method }, response) => {
      const status = method === 'PURGE' ? 204 : method === 'GET' ? 304 : 200;
      response.writeHead(status, status === 204 ? {} : { 'content-length': 7, etag: '"a"' }).end();
    };
    for (const [first, status] of [
      ['HEAD /v1/keys.verifyKey HTTP/1.1', 200],
      ['GET /docs/errors HTTP/1.1', 304],
      ['HEAD //x/../y;z HTTP/1.1', 200],
    ] as const) {
      one.send(call([BEARER], '', first));
      expect(await one.response(true)).toMatchObject({ status, headers: { 'content-length': '7' } });
    }
    const { status, statusText } = await fetch(address, {
      method: 'PURGE',
      headers: { 'x-api-key': 'good' },
    });
    expect([status, statusText]).toEqual([204, 'No Content']);
    expect(upstream.seen.map(({ url }) => url)).toEqual([
      ...['/behind/v1/keys.verifyKey', '/behind/docs/errors', '/behind//x/../y;z', '/behind/'],
    ]);
  });

  test('gets the answer without what was for that hop', async () => {
    upstream.handle = (_, response) => {
      const pairs = {
        'Set-Cookie': ['a', 'b'],
        Connection: ['X-Hop'],
        'X-Hop': ['1'],
        'Server-Timing': ['db'],
      };
      const head = Object.entries(pairs).flatMap(([name, values]) =>
        values.flatMap((value) => [name, value]),
      );
      response.writeHead(418, 'Short and stout', [...head, 'Content-Length', '3']).end('tea');
    };
    const { raw } = await ask([BEARER]);
    expect(raw).toMatch(/^HTTP\/1\.1 418 Short and stout\r\n/);
    expect(raw).not.toMatch(/x-hop|cache-control/i);
    expect(raw.match(/Set-Cookie: [ab]\r\n/g)).toHaveLength(2);
    expect(raw.match(/Server-Timing: /g)).toHaveLength(2);
  });
});

describe('a request that is refused never reaches the API', () => {
  const refusals: [string, string[], number, string, string | undefined][] = [
    ['no key', [], 401, 'KEY_MISSING', 'Bearer realm="api"'],
    ['two keys', [BEARER, 'X-Api-Key: rich'], 401, 'KEY_AMBIGUOUS', 'error="invalid_request"'],
    ['one key twice', [BEARER, BEARER], 401, 'KEY_AMBIGUOUS', 'error="invalid_request"'],
    ['an unknown key', ['X-Api-Key: nobody'], 401, 'NOT_FOUND', 'error="invalid_token"'],
    ['a disabled key', ['X-Api-Key: disabled'], 401, 'DISABLED', 'error="invalid_token"'],
    ['an expired key', ['X-Api-Key: remote-expired'], 401, 'EXPIRED', 'error="invalid_token"'],
    ['a key of another API', ['X-Api-Key: other'], 403, 'FORBIDDEN', undefined],
    ['an outage', ['X-Api-Key: down'], 503, 'SERVICE_UNAVAILABLE', undefined],
  ];
  test.each(refusals)('%s', async (_name, lines, status, code, challenge) => {
    const response = await wire()
      .send(post([...lines, 'X-Request-Id: mine-2', 'Content-Length: 4'], 'body'))
      .response();
    expect(JSON.parse(response.body)).toMatchObject({ status, code, requestId: 'mine-2' });
    const { headers } = response;
    expect(headers).toMatchObject({
      'content-type': 'application/problem+json',
      'cache-control': 'no-store',
      'x-request-id': 'mine-2',
    });
    if (challenge) expect(headers['www-authenticate']).toContain(challenge);
    else expect(headers['www-authenticate']).toBeUndefined();
    expect(headers['retry-after']).toBe(status === 503 ? '1' : undefined);
    expect(upstream).toMatchObject({ seen: [], connections: 0 });
  });

  test('a key of another API than the configured one', async () => {
    await restart({ env: { PROXY_API_ID: 'billing' } });
    for (const name of ['good', 'disabled', 'expired', 'remote-disabled']) {
      const { status, body } = await ask([`X-Api-Key: ${name}`]);
      expect([status, JSON.parse(body).code], name).toEqual([403, 'FORBIDDEN']);
    }
    await restart({ env: { PROXY_API_ID: 'payments' } });
    expect((await ask([BEARER])).status).toBe(200);
    expect(upstream.seen).toHaveLength(1);
  });

  test('an unwanted preflight', async () => {
    const preflight = ['Origin: https://a.example', 'Access-Control-Request-Method: PUT', 'X-Key-Id: admin'];
    const first = 'OPTIONS /orders HTTP/1.1';
    expect((await ask(preflight, '', first)).status).toBe(401);
    await restart({ authz: { allowPreflight: true } });
    expect((await ask(preflight, '', first)).status).toBe(200);
    expect(upstream.seen).toMatchObject([{ headers: { 'x-key-id': '' } }]);
  });

  test('ambiguous framing or address', async () => {
    const chunked = 'Transfer-Encoding: chunked';
    const smuggled = '0\r\n\r\nGET /admin HTTP/1.1\r\nHost: x\r\n\r\n';
    const requests = [
      post([BEARER, chunked, 'Content-Length: 5'], smuggled),
      post([BEARER, 'Content-Length: 5', 'Content-Length: 6'], '123456'),
      post([BEARER, 'Content-Length: 5, 5'], '12345'),
      post([BEARER, 'Content-Length: +5'], '12345'),
      post([BEARER, 'Transfer-Encoding: gzip, chunked'], smuggled),
      post([BEARER, chunked, chunked], smuggled),
      post([BEARER, 'Transfer-Encoding : chunked'], smuggled),
      post([BEARER, 'Transfer-Encoding:\x0bchunked'], smuggled),
      post([BEARER, 'Transfer-Encoding: chunked\r\n , identity'], smuggled),
      post([BEARER, chunked], smuggled).replace('POST /orders HTTP/1.1', 'POST /orders HTTP/1.0'),
      call([BEARER, 'Host: other.example']),
      call([BEARER, 'X-A: 1\nX-Key-Id: admin']),
      call([BEARER, 'X-A: 1\rX-Key-Id: admin']),
      call([BEARER], '', 'GET http://elsewhere.example/ HTTP/1.1'),
      call([BEARER], '', 'OPTIONS * HTTP/1.1'),
      call([BEARER], '', 'GET /a b HTTP/1.1'),
      call([BEARER], '', 'GET /caf\u00e9 HTTP/1.1'),
    ];
    for (const text of requests) {
      const one = wire().send(text);
      const { status, headers } = await one.response();
      expect([text, status, headers['content-type']]).toEqual([text, 400, 'application/problem+json']);
    }
    expect(upstream.seen).toEqual([]);
  });

  test('TRACE and CONNECT', async () => {
    expect((await ask([BEARER], '', 'TRACE / HTTP/1.1')).status).toBe(405);
    expect((await ask([BEARER], '', 'CONNECT shop.example:22 HTTP/1.1')).status).toBe(404);
    expect(upstream.seen).toEqual([]);
  });
});

test('a body that looks like a request stays one', async () => {
  const inner = 'GET /admin HTTP/1.1\r\nHost: x\r\n\r\n';
  const one = wire();
  one.send(post([BEARER, `Content-Length: ${inner.length}`, 'Connection: content-length, host'], inner));
  expect((await one.response()).status).toBe(200);
  const chunk = `${inner.length.toString(16)}\r\n${inner}\r\n0\r\n\r\n`;
  one.send(post([BEARER, 'Transfer-Encoding: chunked', 'Connection: transfer-encoding'], chunk));
  expect((await one.response()).status).toBe(200);
  expect(upstream.seen.map(({ url, body }) => [url, body])).toEqual([
    ['/behind/orders', inner],
    ['/behind/orders', inner],
  ]);
});

test('loses none of many headers', async () => {
  const many = Array.from({ length: 2100 }, () => 'a:');
  upstream.server.maxHeadersCount = 0;
  const one = wire().send(post([...many, BEARER, 'X-Key-Id: admin', 'Content-Length: 4'], 'body'));
  expect((await one.response()).status).toBe(200);
  expect(upstream.seen).toMatchObject([{ body: 'body', headers: { 'x-key-id': 'key_good' } }]);
});

test('finds settings in conflict at the start', () => {
  const url = { UPSTREAM_URL: 'http://x' };
  for (const named of [
    { PROXY_API_ID: 'shop' },
    { PROXY_API_ID: '*' },
    { API_IDS: 'shop' },
    { POD_API_IDS: 'a' },
  ])
    expect(configFaults(verifierConfig({ ...url, ...named }))).toEqual([]);
  expect(configFaults(verifierConfig(url))).toEqual([
    'PROXY_API_ID: required with UPSTREAM_URL unless API_IDS is set; * accepts the keys of every API',
  ]);
  expect(() => verifierConfig({ ...url, UPSTREAM_TIMEOUT_MS: '120000' })).toThrow(/UPSTREAM_TIMEOUT_MS/);
  expect(() => verifierConfig({ PROXY_API_ID: 'a b' })).toThrow(/PROXY_API_ID/);
  expect(() => verifierConfig({ PROXY_PERMISSIONS: 'a AND' })).toThrow(/PROXY_PERMISSIONS: expected a perm/);
});
