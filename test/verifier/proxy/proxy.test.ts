import { createHash, randomBytes } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { connect, createServer, type Socket } from 'node:net';
import { request } from 'undici';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import { unavailable } from '#shared/errors.ts';
import { loadConfig } from '#shared/process/config.ts';
import { configFaults, settings } from '../../../verifier/config.ts';
import { instant } from '../../../verifier/core/lease.ts';
import type { AuthzSettings } from '../../../verifier/endpoints/authz.ts';
import type { HttpLimits } from '../../../verifier/http/limits.ts';
import { proxySettings } from '../../../verifier/proxy/options.ts';
import { createProxy, type ProxyListener } from '../../../verifier/proxy/proxy.ts';
import { Fleet } from '../../harness/fleet.ts';
import { LEASE_MS, lease, limits, ScriptedAnswers } from '../../harness/scripted-answers.ts';
import { Upstream } from '../../harness/upstream.ts';
import { eventually, settled, turns } from '../../harness/waiting.ts';
import { Wire } from '../../harness/wire.ts';

/** The file beside this one tests the same without it. */
const FAST_LANE = process.env['PROXY_FAST_LANE'] !== 'false';

let answers: ScriptedAnswers;
let upstream: Upstream;
let proxy: ProxyListener;
let address: string;
let wires: Wire[];

interface Changed {
  readonly env?: Record<string, string>;
  readonly authz?: Partial<AuthzSettings>;
  readonly limits?: Partial<HttpLimits>;
  readonly url?: string;
}

async function start(changed: Changed = {}): Promise<void> {
  answers = new ScriptedAnswers();
  proxy = await createProxy(new URL(changed.url ?? `${upstream.address}/behind/`), {
    answers,
    authz: { sources: ['bearer', 'x-api-key'], withMeta: false, allowPreflight: false, ...changed.authz },
    config: loadConfig(proxySettings, changed.env ?? {}),
    limits: { ...limits, FAST_LANE, ...changed.limits },
    clock: systemClock,
    log: { error: (fields: unknown) => expect.fail(JSON.stringify(fields)), warn: () => undefined },
  });
  address = await proxy.listen('127.0.0.1', 0);
}
async function restart(changed: Changed): Promise<void> {
  await proxy.close(0);
  await start(changed);
}
function wire(): Wire {
  const made = new Wire(address);
  wires.push(made);
  return made;
}
const BEARER = 'Authorization: Bearer good';
const call = (lines: readonly string[], body = '', first = 'GET /orders/1?a=%20b HTTP/1.1') =>
  [first, 'Host: shop.example', ...lines, '', body].join('\r\n');
const post = (lines: readonly string[], body = '') => call(lines, body, 'POST /orders HTTP/1.1');
const ask = (lines: readonly string[], body?: string, first?: string) =>
  wire()
    .send(call(lines, body, first))
    .response();

beforeEach(async () => {
  wires = [];
  upstream = await Upstream.start();
  await start();
});
afterEach(async () => {
  for (const made of wires) made.close();
  answers.release();
  await proxy.close(0);
  await upstream.close();
});

describe('a request that its key allows', () => {
  test('arrives without the key and with who it is, and nothing that the client says of that', async () => {
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
      ...['X-Forwarded-For', '10.0.0.9, 127.0.0.1', 'X-Request-Id', 'mine-1'],
    ]);
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

  test('loses its key from the query, and nothing else of it', async () => {
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

  test('keeps an Authorization that is no key', async () => {
    await ask(['Authorization: Basic dTpw', 'X-Api-Key: good']);
    expect(upstream.seen[0]?.headers).toMatchObject({ authorization: 'Basic dTpw' });
    expect(upstream.seen[0]?.headers).not.toHaveProperty('x-api-key');
  });

  test('may have any method and path; HEAD, 204 and 304 have no body and keep the connection', async () => {
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

  test('gets the answer as it is, without what was meant for the other hop', async () => {
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

  test('a preflight, unless it is let through, and then without an identity', async () => {
    const preflight = ['Origin: https://a.example', 'Access-Control-Request-Method: PUT', 'X-Key-Id: admin'];
    const first = 'OPTIONS /orders HTTP/1.1';
    expect((await ask(preflight, '', first)).status).toBe(401);
    await restart({ authz: { allowPreflight: true } });
    expect((await ask(preflight, '', first)).status).toBe(200);
    expect(upstream.seen).toMatchObject([{ headers: { 'x-key-id': '' } }]);
  });

  test('what two readers could frame or address differently', async () => {
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

test('a body that looks like a request stays a body, and a header that names the framing does not undo it', async () => {
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

describe('bodies', () => {
  test('flow on piece by piece in both directions, with trailers at the end', async () => {
    upstream.handle = (incoming, response) => {
      response.writeHead(200, { trailer: 'x-sum' });
      incoming.on('data', (chunk: Buffer) => response.write(`<${chunk}>`));
      incoming.on('end', () => {
        response.addTrailers({ 'X-Sum': '42' });
        response.end();
      });
    };
    const one = wire().send(post([BEARER, 'Transfer-Encoding: chunked', 'Connection: close']));
    one.send('3\r\none\r\n');
    await eventually(() => one.received.includes('<one>'));
    one.send('3\r\ntwo\r\n');
    await eventually(() => one.received.includes('<two>'));
    one.send('0\r\n\r\n');
    expect(await one.rest()).toMatch(/0\r\nX-Sum: 42\r\n\r\n$/);
  });

  test('arrive whole, however large', async () => {
    const bytes = randomBytes(8_000_000);
    const sha = (data: Uint8Array) => createHash('sha256').update(data).digest('hex');
    upstream.handle = (incoming, response) => void incoming.pipe(response);
    const options = { method: 'POST', headers: { 'x-api-key': 'good' }, body: bytes } as const;
    const { body } = await request(address, options);
    expect(sha(await body.bytes())).toBe(sha(bytes));
  });

  test('wait for a reader that is slow instead of piling up here', async () => {
    const chunk = Buffer.alloc(65_536, 'x');
    let sent = 0;
    upstream.handle = (_, response) => {
      const more = () => {
        do sent += chunk.length;
        while (sent < 100_000_000 && response.write(chunk));
      };
      response.on('drain', more);
      more();
    };
    const socket = connect(Number(new URL(address).port), '127.0.0.1').on('error', () => undefined);
    socket.write(call([BEARER]));
    await eventually(() => sent > 0);
    const refused = () => ask([]);
    expect(await settled(() => sent, refused)).toBeLessThan(50_000_000);
    socket.resetAndDestroy();
    await eventually(() => upstream.seen[0]?.aborted === true);
  });

  test('may take longer than REQUEST_TIMEOUT_MS, as long as something comes', async () => {
    await restart({ limits: { REQUEST_TIMEOUT_MS: 200, HEADERS_TIMEOUT_MS: 200, STALL_TIMEOUT_MS: 1000 } });
    const one = wire().send(post([BEARER, 'Content-Length: 10']));
    const begunAtMs = performance.now();
    for (let i = 1; i <= 10; i++) {
      await eventually(() => performance.now() > begunAtMs + 60 * i);
      one.send('x');
      await eventually(() => upstream.seen[0]?.body.length === i);
    }
    expect((await one.response()).status).toBe(200);
    const stalled = wire().send(post([BEARER, 'Content-Length: 10'], 'x'));
    await stalled.rest();
    await eventually(() => upstream.seen[1]?.aborted === true);
  });

  test('that the client no longer waits for are no longer made', async () => {
    upstream.handle = (_, response) => void response.write('first');
    const streaming = wire().send(call([BEARER]));
    await eventually(() => streaming.received.includes('first'));
    upstream.handle = () => undefined;
    const waiting = wire().send(call([BEARER]));
    await eventually(() => upstream.seen.length === 2);
    for (const one of [streaming, waiting]) one.close();
    await eventually(() => upstream.seen.every(({ aborted }) => aborted));
    await eventually(() => proxy.requestsInFlight === 0);
  });

  test('that the client breaks off are broken off at the API', async () => {
    const one = wire().send(post([BEARER, 'Content-Length: 10'], 'x'));
    await eventually(() => upstream.seen[0]?.body === 'x');
    one.socket.resetAndDestroy();
    await eventually(() => upstream.seen[0]?.aborted === true);
    expect(proxy.requestsInFlight).toBe(0);
  });

  test('are asked for only when the key is good', async () => {
    const lines = ['Expect: 100-continue', 'Content-Length: 4'];
    const refused = wire().send(post(['X-Api-Key: nobody', ...lines]));
    expect((await refused.response()).status).toBe(401);
    const one = wire().send(post([BEARER, ...lines]));
    expect((await one.response()).status).toBe(100);
    expect((await one.send('body').response()).status).toBe(200);
    expect(upstream.seen).toMatchObject([{ body: 'body' }]);
  });

  test('are asked for when their turn comes, and never within an answer', async () => {
    const large = 'x'.repeat(5000);
    let endFirst: (() => void) | undefined;
    upstream.handle = (request, response) => {
      if (endFirst) request.on('end', () => response.end(large));
      else endFirst = () => response.end(large);
    };
    const expecting = post([BEARER, 'Expect: 100-continue', 'Content-Length: 4'], 'body');
    const one = wire().send(expecting + expecting);
    await eventually(() => upstream.seen[0]?.body === 'body' && proxy.requestsInFlight === 2);
    // The second would be answered before these, were it passed on.
    for (let i = 0; i < 2; i++) expect((await ask([BEARER])).body).toBe(large);
    endFirst?.();
    for (let i = 0; i < 2; i++) {
      expect((await one.response()).status).toBe(100);
      expect(await one.response()).toMatchObject({ status: 200, headers: { connection: 'keep-alive' } });
    }
    expect(one.received).toBe('');
    expect(upstream.seen.map(({ body }) => body)).toEqual(['body', '', '', 'body']);
  });

  test('whose turn does not come are forgotten with their client', async () => {
    await restart({ env: { UPSTREAM_CONNECTIONS_MAX: '2' } });
    const { handle } = upstream;
    upstream.handle = () => undefined;
    const lines = [BEARER, 'Expect: 100-continue', 'Content-Length: 4'];
    for (let i = 0; i < 3; i++) {
      const one = wire().send(post(lines, 'body') + post(lines));
      await eventually(() => upstream.seen[i]?.body === 'body' && proxy.requestsInFlight === 2);
      one.socket.resetAndDestroy();
      await eventually(() => upstream.seen[i]?.aborted === true);
      await eventually(() => proxy.requestsInFlight === 0 && proxy.stats.inFlight === 0);
    }
    upstream.handle = handle;
    expect(await Promise.all([1, 2].map(async () => (await ask([BEARER])).status))).toEqual([200, 200]);
  });
});

describe('an API', () => {
  const codeOf = async (lines = [BEARER]) => {
    const { status, headers, body } = await ask(lines);
    expect(headers['content-type']).toBe('application/problem+json');
    return [status, JSON.parse(body).code];
  };

  test('that is not there is 502', async () => {
    await restart({ url: 'http://127.0.0.1:1' });
    expect(await codeOf()).toEqual([502, 'BAD_GATEWAY']);
  });

  test('that breaks off before its answer is 502, and within it the answer is cut', async () => {
    upstream.handle = ({ socket }) => socket.destroy();
    expect(await codeOf()).toEqual([502, 'BAD_GATEWAY']);
    upstream.handle = ({ socket }, response) => {
      response.write('first');
      setImmediate(() => socket.destroy());
    };
    const text = await wire()
      .send(call([BEARER]))
      .rest();
    expect(text).toContain('first');
    expect(text).not.toContain('\r\n0\r\n');
  });

  test('that closes a connection before its answer is asked once more where that is safe, and only then', async () => {
    const once: typeof upstream.handle = ({ socket }) => {
      upstream.handle = (_, response) => void response.end('again');
      socket.destroy();
    };
    for (const [first, lines, status, times] of [
      ['GET / HTTP/1.1', [BEARER], 200, 2],
      ['POST / HTTP/1.1', [BEARER, 'Content-Length: 0'], 502, 1],
      ['GET / HTTP/1.1', [BEARER, 'Content-Length: 4'], 502, 1],
    ] as const) {
      upstream.seen.length = 0;
      upstream.handle = once;
      const one = wire().send(call(lines, 'body'.slice(0, Number(lines[1]?.slice(-1) ?? 0)), first));
      await eventually(() => one.ended || one.received.includes(`HTTP/1.1 ${status}`));
      expect([first, upstream.seen.length]).toEqual([first, times]);
    }
  });

  test('that says nothing in time is 504', async () => {
    await restart({ env: { UPSTREAM_TIMEOUT_MS: '100' } });
    upstream.handle = () => undefined;
    expect(await codeOf()).toEqual([504, 'GATEWAY_TIMEOUT']);
    await eventually(() => upstream.seen[0]?.aborted === true);
  });

  test('gets no more at once than it may, and the others are 503', async () => {
    await restart({ env: { UPSTREAM_CONNECTIONS_MAX: '2' } });
    const held: (() => void)[] = [];
    upstream.handle = (_, response) => void held.push(() => response.end('late'));
    const first = [0, 1].map(() => wire().send(call([BEARER])));
    await eventually(() => held.length === 2);
    expect(await codeOf()).toEqual([503, 'SERVICE_UNAVAILABLE']);
    for (const release of held) release();
    for (const each of first) await eventually(() => each.received.includes('late'));
    expect(upstream.connections).toBe(2);
  });
});

describe('a WebSocket', () => {
  const handshake = (lines: readonly string[] = [BEARER], more = '') =>
    call(
      ['Connection: keep-alive, Upgrade', 'Upgrade: WebSocket', 'Sec-WebSocket-Key: abc', ...lines],
      more,
      'GET /live HTTP/1.1',
    );
  const SWITCHING =
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: def\r\n';
  let behind: Socket[];
  let heard: string;
  afterEach(() => {
    for (const socket of behind) socket.destroy();
  });

  /** Lets the API agree to every upgrade and say `hello`, then hands its side of the connection out. */
  function agree(head = `${SWITCHING}Upgrade: websocket\r\n\r\nhello`): void {
    [behind, heard] = [[], ''];
    upstream.server.on('upgrade', (incoming, socket: Socket) => {
      const { method = '', url = '', rawHeaders, headers } = incoming;
      upstream.seen.push({ method, url, rawHeaders, headers, body: '', aborted: false });
      socket.on('error', () => undefined).on('end', () => socket.end());
      socket.on('data', (chunk: Buffer) => {
        heard += chunk;
      });
      socket.write(head);
      behind.push(socket);
    });
  }
  async function opened(): Promise<[Wire, Socket]> {
    agree();
    const one = wire().send(handshake());
    await eventually(() => one.received.includes('hello'));
    const [socket] = behind;
    if (socket === undefined) throw new Error('the API has no connection');
    return [one, socket];
  }

  test('is joined to the API, which is told who it is; bytes go both ways', async () => {
    agree();
    const one = wire().send(handshake([BEARER, 'X-Key-Id: admin'], 'early'));
    await eventually(() => one.received.endsWith('hello'));
    expect(one.received).toMatch(
      /^HTTP\/1\.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n/,
    );
    expect(one.received).toContain('Sec-WebSocket-Accept: def\r\n');
    expect(upstream.seen[0]?.headers).toMatchObject({ 'sec-websocket-key': 'abc', 'x-key-id': 'key_good' });
    expect(upstream.seen[0]?.headers).not.toHaveProperty('authorization');
    one.send('ping');
    behind[0]?.write('pong');
    await eventually(() => heard === 'earlyping' && one.received.endsWith('pong'));
    expect(proxy.requestsInFlight).toBe(1);
  });

  test('that its key does not allow is refused before the API hears of it', async () => {
    agree();
    const refused = await wire()
      .send(handshake(['X-Api-Key: disabled']))
      .response();
    expect(JSON.parse(refused.body)).toMatchObject({ status: 401, code: 'DISABLED' });
    const down = await wire()
      .send(handshake(['X-Api-Key: down']))
      .response();
    expect(down.status).toBe(503);
    expect(upstream).toMatchObject({ seen: [], connections: 0 });
  });

  test('that the API refuses is answered as the API does, and what comes after is never taken for a request', async () => {
    behind = [];
    upstream.server.on('upgrade', (_, socket: Socket) => {
      socket.end('HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno');
    });
    const one = wire().send(handshake([BEARER], 'GET /admin HTTP/1.1\r\nHost: x\r\n\r\n'));
    expect(await one.response()).toMatchObject({ status: 426, body: 'no', headers: { connection: 'close' } });
    await one.rest();
    expect(upstream.seen).toEqual([]);
    expect(proxy.requestsInFlight).toBe(0);
  });

  test('that the API turns into something else is 502', async () => {
    agree(`${SWITCHING}Upgrade: h2c\r\n\r\n`);
    expect((await wire().send(handshake()).response()).status).toBe(502);
    await restart({ url: 'http://127.0.0.1:1' });
    expect((await wire().send(handshake()).response()).status).toBe(502);
  });

  test('ends at the API when the client leaves, and at the client when the API does, after its last words', async () => {
    const [one, socket] = await opened();
    const gone = new Promise((resolve) => socket.once('close', resolve));
    one.socket.resetAndDestroy();
    await gone;
    behind = [];
    const other = wire().send(handshake());
    await eventually(() => behind.length === 1);
    const last = 'x'.repeat(1_000_000);
    behind[0]?.end(`${last}bye`);
    expect(await other.rest()).toMatch(/xbye$/);
    await eventually(() => proxy.requestsInFlight === 0);
  });

  test('whose key is disabled is cut', async () => {
    await restart({ env: { PROXY_RECHECK_MS: '100' } });
    const [one, socket] = await opened();
    answers.disabled.add('good');
    await one.rest();
    await eventually(() => socket.destroyed);
  });

  test('on which nothing moves is cut', async () => {
    await restart({ env: { WEBSOCKET_IDLE_MS: '1000' } });
    const [one, socket] = await opened();
    await one.rest();
    await eventually(() => socket.destroyed);
  });

  test('counts towards what the API gets at once, and is cut when the listener closes', async () => {
    await restart({ env: { UPSTREAM_CONNECTIONS_MAX: '1' } });
    const [one] = await opened();
    expect((await ask([BEARER])).status).toBe(503);
    await proxy.close(0);
    await one.rest();
  });

  test('asked for behind a request that waits is answered after it: the lane waits, Node takes it for a plain request', async () => {
    agree();
    const one = wire()
      .send(call(['X-Api-Key: slow-good']))
      .send(handshake());
    if (!FAST_LANE) await eventually(() => upstream.seen.length === 1);
    await eventually(() => answers.asked.includes('slow-good'));
    answers.release();
    expect((await one.response()).body).toBe('ok');
    if (FAST_LANE) await eventually(() => /^HTTP\/1\.1 101 .*hello$/s.test(one.received));
    else expect((await one.response()).body).toBe('ok');
  });

  test('asked for with a body, or another protocol, is a plain request', async () => {
    agree();
    const body = await wire()
      .send(handshake([BEARER, 'Content-Length: 4'], 'body'))
      .response();
    expect(body.body).toBe('ok');
    const h2c = await wire().send(handshake().replace('WebSocket\r\n', 'h2c\r\n')).response();
    expect(h2c.body).toBe('ok');
    for (const { headers } of upstream.seen) expect(headers.upgrade).toBeUndefined();
  });
});

describe('what goes on for longer than PROXY_RECHECK_MS', () => {
  const stream = async (line: string) => {
    upstream.handle = (_, response) => void response.write('first');
    const one = wire().send(call([line]));
    await eventually(() => one.received.includes('first'));
    return one;
  };

  test('is cut, here and at the API, when its key is no longer good, and not before', async () => {
    await restart({ env: { PROXY_RECHECK_MS: '100' } });
    const one = await stream(BEARER);
    const before = answers.asked.length;
    await eventually(() => answers.asked.length > before + 2);
    expect(one.ended).toBe(false);
    answers.disabled.add('good');
    await one.rest();
    await eventually(() => upstream.seen[0]?.aborted === true);
    expect(proxy.requestsInFlight).toBe(0);
  });

  const looks = () => answers.asked.filter((key) => key === 'remote-good').length;
  const cutOff = async () => {
    throw unavailable('no answer from Redis');
  };

  test('goes on where there is no verdict while the lease of the last one lasts, and is not asked about once it is over', async () => {
    await restart({ env: { PROXY_RECHECK_MS: '100' } });
    const one = await stream('X-Api-Key: remote-good');
    answers.lookUp = cutOff;
    const before = looks();
    await eventually(() => looks() > before + 2);
    expect(one.ended).toBe(false);
    one.close();
    await eventually(() => proxy.requestsInFlight === 0);
    const after = looks();
    // Another one is asked about in each period that passes.
    await stream(BEARER);
    const others = answers.asked.length;
    await eventually(() => answers.asked.length > others + 3);
    expect(looks()).toBe(after);
  });

  test('is cut where there is no verdict and the lease of the last one has passed', async () => {
    await restart({ env: { PROXY_RECHECK_MS: '100' } });
    lease.cut();
    lease.extend(instant(systemClock), 1000);
    const one = await stream('X-Api-Key: remote-good');
    answers.lookUp = cutOff;
    // Given anew to keys that are asked about, which is no verdict on this one.
    lease.extend(instant(systemClock), LEASE_MS);
    await one.rest();
    await eventually(() => upstream.seen[0]?.aborted === true);
  });

  test('has a new lease with each verdict', async () => {
    await restart({ env: { PROXY_RECHECK_MS: '100' } });
    lease.cut();
    lease.extend(instant(systemClock), 300);
    const one = await stream('X-Api-Key: remote-good');
    lease.extend(instant(systemClock), LEASE_MS);
    let before = looks();
    await eventually(() => looks() > before + 4);
    answers.lookUp = cutOff;
    before = looks();
    await eventually(() => looks() > before + 4);
    expect(one.ended).toBe(false);
    one.close();
  });
});

test('what goes on is one verdict and one use of its key, however often it is judged', async () => {
  const fleet = await Fleet.start({ verifiers: 0 });
  try {
    const { proxyAddress = '', adminAddress } = await fleet.addVerifier({
      UPSTREAM_URL: upstream.address,
      PROXY_PORT: '0',
      PROXY_RECHECK_MS: '100',
      USAGE_PERIOD_MS: '100',
    });
    const [long, short] = [
      await fleet.ok('keys.createKey', { apiId: 'shop' }),
      await fleet.ok('keys.createKey', { apiId: 'shop' }),
    ];
    for (const { key } of [long, short]) {
      const status = async () => (await fleet.get(`${proxyAddress}/a`, { 'x-api-key': key })).status;
      await fleet.until(async () => (await status()) === 200);
    }
    const counted = async () => {
      const { body } = await fleet.get(`${adminAddress}/metrics`);
      const values = [...String(body).matchAll(/^keyfence_verdicts_total\{.*\} (\d+)$/gm)];
      return values.reduce((total, [, value]) => total + Number(value), 0);
    };
    const used = async () => {
      const query = { keyId: long.keyId };
      const { verifications } = await fleet.ok('keys.getVerifications', query);
      return verifications.reduce((total: number, { success }: { success: number }) => total + success, 0);
    };
    await fleet.until(async () => (await used()) > 0);
    const before = { counted: await counted(), used: await used() };
    upstream.handle = (_request, response) => void response.write('first');
    for (let i = 0; i < 4; i++) {
      const { key, keyId } = i === 0 ? long : short;
      const one = new Wire(proxyAddress);
      wires.push(one.send(call([`X-Api-Key: ${key}`])));
      await eventually(() => one.received.includes('first'));
      if (i === 0) continue;
      // It is cut where all that goes on is judged.
      await fleet.ok('keys.updateKey', { keyId, enabled: false });
      await one.rest();
      await fleet.ok('keys.updateKey', { keyId, enabled: true });
    }
    expect(await counted()).toBe(before.counted + 4);
    await fleet.until(async () => (await used()) > before.used);
    expect(await used()).toBe(before.used + 1);
  } finally {
    await fleet.stop();
  }
});

test('a disabled key is refused as soon as updateKey returns', async () => {
  const fleet = await Fleet.start({ verifiers: 0 });
  try {
    const { proxyAddress = '', adminAddress } = await fleet.addVerifier({
      UPSTREAM_URL: upstream.address,
      PROXY_PORT: '0',
    });
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', name: 'Zoë' });
    const status = async () => (await fleet.get(`${proxyAddress}/orders`, { 'x-api-key': key })).status;
    await fleet.until(async () => (await status()) === 200);
    expect(upstream.seen.at(-1)).toMatchObject({
      url: '/orders',
      headers: { 'x-key-id': keyId, 'x-key-api-id': 'shop', 'x-key-name': 'Zo%C3%AB' },
    });
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(await status()).toBe(401);
    await fleet.ok('keys.updateKey', { keyId, enabled: true });
    await fleet.until(async () => (await status()) === 200);
    await upstream.close();
    expect(await status()).toBe(502);
    const { body } = await fleet.get(`${adminAddress}/metrics`);
    expect(body).toMatch(/^keyfence_relayed_in_flight\{to="api"\} 0$/m);
    expect(body).toMatch(/^keyfence_relay_faults_total\{to="api",fault="unreachable"\} 1$/m);
  } finally {
    await fleet.stop();
  }
});

test('of many headers none is lost: neither the key at their end nor the length of the body', async () => {
  const many = Array.from({ length: 2100 }, () => 'a:');
  upstream.server.maxHeadersCount = 0;
  const one = wire().send(post([...many, BEARER, 'X-Key-Id: admin', 'Content-Length: 4'], 'body'));
  expect((await one.response()).status).toBe(200);
  expect(upstream.seen).toMatchObject([{ body: 'body', headers: { 'x-key-id': 'key_good' } }]);
});

test('an answer that two readers could frame differently is never passed on as if it were whole', async () => {
  const answersOf = [
    'Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n',
    'Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc',
    'Content-Length: 2, 3\r\n\r\nabc',
    'Content-Length: -1\r\n\r\nabc',
    'Transfer-Encoding: gzip\r\n\r\nabc',
    'X-A: b\nSet-Cookie: evil\r\nContent-Length: 2\r\n\r\nab',
    'Content-Length: 4\r\n\r\nab',
  ];
  for (const text of answersOf) {
    const raw = createServer((socket) => {
      socket.on('error', () => undefined).once('data', () => socket.end(`HTTP/1.1 200 OK\r\n${text}`));
    });
    await new Promise<void>((resolve) => raw.listen(0, '127.0.0.1', resolve));
    await restart({ url: `http://127.0.0.1:${(raw.address() as { port: number }).port}` });
    const one = wire().send(call([BEARER]));
    const outcome = await one.response().then(
      ({ status }) => status,
      () => 'cut',
    );
    expect([text, outcome]).toEqual([text, expect.toSatisfy((it) => it === 502 || it === 'cut')]);
    raw.close();
  }
});

test('a silent API holds no more connections than it may', async () => {
  const sockets = new Set<Socket>();
  const silent = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const { port } = silent.address() as { port: number };
  await restart({
    url: `http://127.0.0.1:${port}`,
    env: { UPSTREAM_CONNECTIONS_MAX: '4', UPSTREAM_TIMEOUT_MS: '300' },
  });
  const statuses = await Promise.all(
    Array.from({ length: 10 }, async () => {
      const { status } = await ask([BEARER]);
      expect(sockets.size).toBeLessThanOrEqual(4);
      return status;
    }),
  );
  expect(statuses.toSorted()).toEqual([503, 503, 503, 503, 503, 503, 504, 504, 504, 504]);
  silent.close();
});

describe('calls on one connection', () => {
  test('are answered in order, however many are sent at once', async () => {
    upstream.handle = ({ url }, response) => void response.end(url);
    const calls = Array.from({ length: 900 }, (_, i) => ({
      key: i % 50 === 0 ? 'slow-good' : i % 7 === 0 ? 'good' : 'disabled',
      target: `/${i}`,
    }));
    const one = wire().send(
      calls.map(({ key, target }) => call([`X-Api-Key: ${key}`], '', `GET ${target} HTTP/1.1`)).join(''),
    );
    const releasing = setInterval(() => answers.release(), 1);
    for (const { key, target } of calls) {
      const { status, body } = await one.response();
      expect([target, status]).toEqual([target, key === 'disabled' ? 401 : 200]);
      if (status === 200) expect(body).toBe(`/behind${target}`);
    }
    clearInterval(releasing);
    expect(proxy.requestsInFlight).toBe(0);
    expect(proxy.lane).toEqual(
      FAST_LANE ? { answered: 900, lent: 0, handedOver: 0 } : { answered: 0, lent: 0, handedOver: 0 },
    );
  });

  test('may have short bodies, and any of them may be uncommon', async () => {
    const one = wire();
    for (const [first, lines, body] of [
      ['POST /a HTTP/1.1', ['Content-Length: 3'], 'abc'],
      ['PUT /b HTTP/1.1', ['Content-Length: 3'], 'abc'],
      ['DELETE /c HTTP/1.1', [], ''],
      ['PATCH /d HTTP/1.1', ['Transfer-Encoding: chunked'], '3\r\nabc\r\n0\r\n\r\n'],
      ['GET /e HTTP/1.1', [], ''],
    ] as const) {
      one.send(call([BEARER, ...lines], body, first));
      expect(await one.response()).toMatchObject({ status: 200, body: 'ok' });
    }
    expect(upstream.seen.map(({ method, body }) => method + body)).toEqual([
      'POSTabc',
      'PUTabc',
      'DELETE',
      'PATCHabc',
      'GET',
    ]);
    expect(proxy.lane).toEqual(
      FAST_LANE ? { answered: 3, lent: 0, handedOver: 1 } : { answered: 0, lent: 0, handedOver: 0 },
    );
  });

  test('that are refused, or whose bodies are long, leave it in the lane', async () => {
    const body = 'b'.repeat(100_000);
    const one = wire();
    for (let i = 0; i < 3; i++) {
      expect((await one.send(call([])).response()).status).toBe(401);
      expect((await one.send(call([BEARER])).response()).status).toBe(200);
      one.send(post([BEARER, 'Content-Length: 100000'], body));
      expect((await one.response()).status).toBe(200);
      one.send(call([BEARER]) + post([BEARER, 'Content-Length: 100000'], body) + call([BEARER]));
      for (let j = 0; j < 3; j++) expect((await one.response()).status).toBe(200);
    }
    expect(upstream.seen.filter((seen) => seen.body === body).length).toBe(6);
    if (FAST_LANE) expect(proxy.lane).toEqual({ answered: 9, lent: 9, handedOver: 0 });
  });

  test('that are given up are given up at the API, however long their bodies', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    upstream.handle = (_request, response) => void response.once('close', resolve);
    const one = wire().send(
      call([BEARER, 'Content-Length: 100000'], 'b'.repeat(100_000), 'POST /a HTTP/1.1'),
    );
    await eventually(() => upstream.seen.length === 1);
    one.socket.end();
    await promise;
    await eventually(() => proxy.requestsInFlight === 0 && proxy.stats.inFlight === 0);
    if (FAST_LANE) expect(proxy.lane.handedOver).toBe(0);
  });

  test('and what is no request behind one that waits, whose refusal comes whole, and once', async () => {
    const one = wire().send(call(['X-Api-Key: slow-good']));
    await eventually(() => answers.asked.includes('slow-good'));
    const warned: string[] = [];
    const warn = ({ name }: Error) => void warned.push(name);
    process.on('warning', warn);
    for (let i = 0; i < 20; i++) {
      one.send('!');
      await turns();
    }
    process.off('warning', warn);
    // Of listeners, one for each piece.
    expect(warned).toEqual([]);
    answers.release();
    expect((await one.response()).status).toBe(200);
    expect(await one.response()).toMatchObject({ status: 400, headers: { connection: 'close' } });
    expect(await one.rest()).toBe('');
  });

  test('that are under way when the listener closes are answered, and the connection is closed', async () => {
    let release = (): void => undefined;
    upstream.handle = (_, response) => {
      release = () => void response.end('late');
    };
    const one = wire().send(call([BEARER]));
    await eventually(() => upstream.seen.length === 1);
    const closed = proxy.close(10_000);
    release();
    expect(await one.response()).toMatchObject({
      status: 200,
      body: 'late',
      headers: { connection: 'close' },
    });
    await one.rest();
    await closed;
    await start();
  });

  test('that are too many at once are refused', async () => {
    await restart({ limits: { REQUESTS_IN_FLIGHT_MAX: 1 } });
    upstream.handle = () => undefined;
    const first = wire().send(call([BEARER]));
    await eventually(() => upstream.seen.length === 1);
    expect((await ask([BEARER])).status).toBe(503);
    first.close();
    await eventually(() => proxy.requestsInFlight === 0);
  });

  test('are forgotten when their client is gone, wherever it leaves', async () => {
    const keys = ['disabled', 'good', 'slow-good', 'disabled', 'good'];
    const calls = keys.map((key) => call([`X-Api-Key: ${key}`])).join('');
    const releasing = setInterval(() => answers.release(), 1);
    for (let i = 0; i < 100; i++) {
      const one = wire().send(calls);
      if (i % 3 > 0) await eventually(() => one.received.includes(i % 3 === 1 ? ' 401 ' : ' 200 '));
      one.socket.resetAndDestroy();
    }
    await eventually(() => proxy.requestsInFlight === 0 && proxy.stats.inFlight === 0);
    clearInterval(releasing);
  });

  // Node has read and judged them already.
  if (FAST_LANE)
    test('are not begun behind one during which their client has gone', async () => {
      const sockets: Socket[] = [];
      const accepted = (message: unknown) => void sockets.push((message as { socket: Socket }).socket);
      subscribe('net.server.socket', accepted);
      const decide = answers.decide.bind(answers);
      answers.decide = (key, apiId) => {
        for (const socket of sockets) socket.destroy();
        return decide(key, apiId);
      };
      const one = wire().send(call(['X-Api-Key: disabled']) + call([BEARER]));
      await one.rest();
      await eventually(() => proxy.requestsInFlight === 0);
      unsubscribe('net.server.socket', accepted);
      expect(answers.asked).toEqual(['disabled']);
    });

  test('whose client does not read are given up', async () => {
    await restart({ limits: { STALL_TIMEOUT_MS: 300 }, env: { UPSTREAM_TIMEOUT_MS: '200' } });
    upstream.handle = (_, response) => {
      const more = () => {
        while (response.write(Buffer.alloc(65_536)));
      };
      response.on('drain', more);
      more();
    };
    const socket = connect(Number(new URL(address).port), '127.0.0.1').on('error', () => undefined);
    socket.pause().write(call([BEARER]));
    await eventually(() => upstream.seen[0]?.aborted === true);
    await eventually(() => proxy.requestsInFlight === 0);
    socket.destroy();
  });
});

test('settings that cannot be together are found at the start', () => {
  const url = { UPSTREAM_URL: 'http://x' };
  expect(configFaults(loadConfig(settings, url))).toEqual([]);
  const slow = loadConfig(settings, { ...url, UPSTREAM_TIMEOUT_MS: '120000' });
  expect(configFaults(slow)).toEqual(['UPSTREAM_TIMEOUT_MS: must be below STALL_TIMEOUT_MS']);
  expect(() => loadConfig(settings, { PROXY_API_ID: 'a b' })).toThrow(/PROXY_API_ID/);
});
