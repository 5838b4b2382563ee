import { createServer, type Server } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '#shared/process/clock.ts';
import { loadConfig } from '#shared/process/load-config.ts';
import { createProxy, type ProxyListener, proxySettings } from '../../../verifier/proxy/proxy.ts';
import { limits, ScriptedAnswers } from '../../harness/scripted-answers.ts';
import { eventually } from '../../harness/waiting.ts';
import { Wire } from '../../harness/wire.ts';

const HEAD_BYTES_MAX = 16_384;
const CLOSE = '<closed>';

describe.each([true, false])('with FAST_LANE=%s', (FAST_LANE) => {
  let api: Server;
  /** Requests as they came, whole heads. */
  let seen: string[];
  /** Answers of the API, as latin1. It closes where an answer ends so. */
  let says: (nth: number) => string;
  let proxy: ProxyListener;
  let address: string;
  let warned: Record<string, unknown>[];
  let wires: Wire[];

  beforeEach(async () => {
    [seen, warned, wires] = [[], [], []];
    const heard = seen; // of this test: what comes late from the one before is not in the next one's
    api = createServer((socket) => {
      socket
        .on('error', () => undefined)
        .on('data', (bytes) => {
          heard.push(bytes.toString('latin1'));
          const text = says(heard.length);
          socket.write(text.replace(CLOSE, ''), 'latin1');
          if (text.endsWith(CLOSE)) socket.end();
        });
    });
    await new Promise<void>((resolve) => api.listen(0, '127.0.0.1', resolve));
    await start('');
  });
  afterEach(async () => {
    for (const wire of wires) wire.close();
    await proxy.close(0);
    api.close();
  });

  async function start(path: string, headerBytesMax = HEAD_BYTES_MAX, env: Record<string, string> = {}) {
    const { port } = api.address() as { port: number };
    proxy = await createProxy(new URL(`http://127.0.0.1:${port}${path}`), {
      verifier: new ScriptedAnswers(),
      authz: { sources: ['bearer', 'x-api-key'], withMeta: false, allowPreflight: false, needsApi: false },
      config: loadConfig(proxySettings, env),
      limits: { ...limits, FAST_LANE, HEADER_BYTES_MAX: headerBytesMax },
      clock: systemClock,
      log: {
        error: (fields: unknown) => expect.fail(JSON.stringify(fields)),
        warn: (fields: unknown) => void warned.push(fields as Record<string, unknown>),
      },
    });
    address = await proxy.listen('127.0.0.1', 0);
  }
  async function restart(path: string, headerBytesMax?: number, env?: Record<string, string>) {
    await proxy.close(0);
    await start(path, headerBytesMax, env);
  }
  const ask = (first = 'GET / HTTP/1.1', lines: readonly string[] = []) => {
    const wire = new Wire(address);
    wires.push(wire);
    return wire.send([first, 'Host: shop.example', 'X-Api-Key: good', ...lines, '', ''].join('\r\n'));
  };
  const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

  test.each([
    ['in UTF-8', '404 \xd0\x9d\xd0\xb5\xd1\x82', '404 \xd0\x9d\xd0\xb5\xd1\x82'],
    [
      'with a line end hidden in UTF-8',
      '404 No \xc4\x8d\xc4\x8aSet-Cookie: a=evil',
      '404 No \xc4\x8d\xc4\x8aSet-Cookie: a=evil',
    ],
    ['that is no UTF-8', '404 caf\xe9', '404 '],
    ['with nothing in it', '404', '404 '],
  ])('a reason phrase %s is whole or left out', async (_, said, wanted) => {
    says = () => `HTTP/1.1 ${said}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno`;
    const wire = ask();
    await eventually(() => wire.received.endsWith('\r\n\r\nno'));
    const [first, ...lines] = wire.received.split('\r\n');
    expect(first).toBe(`HTTP/1.1 ${wanted}`);
    expect(lines.join('\r\n')).not.toMatch(/^set-cookie/im);
    says = () => OK;
    expect((await ask().response()).body).toBe('ok');
  });

  test.each([
    ['is no HTTP', '220 mail.example ESMTP\r\n'],
    ['has a header that is none', 'HTTP/1.1 200 OK\r\nX A: b\r\n\r\n'],
    ['has a head over HEADER_BYTES_MAX', `HTTP/1.1 200 OK\r\nX-A: ${'a'.repeat(HEAD_BYTES_MAX)}\r\n\r\n`],
    [
      'changes the protocol unasked',
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: Upgrade\r\n\r\n',
    ],
  ])('an answer that %s is 502 and logged', async (_, text) => {
    says = () => text;
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    const named = ['X-Request-Id: mine', `Traceparent: ${traceparent}`];
    expect((await ask('GET / HTTP/1.1', named).response()).status).toBe(502);
    expect(seen).toHaveLength(1);
    expect(seen[0]).toContain(`\r\nTraceparent: ${traceparent}\r\n`);
    expect(warned).toMatchObject([
      {
        requestId: 'mine',
        traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
        method: 'GET',
        reason: expect.any(String),
        unsaid: 0,
      },
    ]);
    expect(JSON.stringify(warned)).not.toContain('ESMTP');
    const { cut, invalid } = proxy.stats.faults;
    expect(cut + invalid).toBe(1);
    says = () => OK;
    expect((await ask().response()).body).toBe('ok');
  });

  test('asks no more after a head that broke off', async () => {
    says = (nth) => (nth === 1 ? `HTTP/1.1 200 OK\r\nConte${CLOSE}` : OK);
    expect((await ask().response()).status).toBe(502);
    expect(seen).toHaveLength(1);
    expect(warned).toMatchObject([{ fault: 'cut', unsaid: 0 }]);
  });

  test.each([
    ['without a body', 'GET / HTTP/1.1', []],
    ['with one', 'POST / HTTP/1.1', ['Transfer-Encoding: chunked', '', '1\r\na\r\n0']],
  ])('endless 1xx are no answer to a request %s', async (_, first, lines) => {
    await restart('', HEAD_BYTES_MAX, { UPSTREAM_TIMEOUT_MS: '200' });
    const hint = 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n';
    says = () => '';
    let closed = 0;
    api.on('connection', (socket) => {
      const flood = setInterval(() => socket.write(hint), 10);
      socket.on('close', () => {
        clearInterval(flood);
        closed++;
      });
    });
    const { status, body } = await ask(first, lines).response();
    expect([status, JSON.parse(body).code]).toEqual([504, 'GATEWAY_TIMEOUT']);
    expect(warned).toMatchObject([{ fault: 'late', reason: expect.stringContaining('1xx'), unsaid: 0 }]);
    expect(proxy.stats.faults.late).toBe(1);
    await eventually(() => closed === 1);
  });

  test('endless 1xx during a body are no answer', async () => {
    says = () => 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'.repeat(10);
    const wire = ask('POST / HTTP/1.1', ['Transfer-Encoding: chunked']);
    let ended = false;
    const answer = wire.response().finally(() => {
      ended = true;
    });
    // Each piece is answered by ten of them.
    await eventually(() => {
      wire.send('1\r\na\r\n');
      return ended;
    });
    const { status, body } = await answer;
    expect([status, JSON.parse(body).code]).toEqual([502, 'BAD_GATEWAY']);
    expect(warned).toMatchObject([{ fault: 'invalid', reason: expect.stringContaining('1xx'), unsaid: 0 }]);
  });

  test('a hundred heads of 1xx before an answer pass', async () => {
    says = () => 'HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(100) + OK;
    expect((await ask().response()).body).toBe('ok');
  });

  test('an early 1xx does not end what is left', async () => {
    await restart('', HEAD_BYTES_MAX, { UPSTREAM_TIMEOUT_MS: '600' });
    const pieces = ['HTTP/1.1 103 Early Hints\r\n\r\n', 'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n'];
    pieces.push(...'abcdefghijklmnopqrst');
    says = () => '';
    api.on('connection', (socket) => {
      const each = setInterval(() => socket.write(pieces.shift() ?? ''), 50);
      socket.on('close', () => clearInterval(each));
    });
    expect((await ask().response()).body).toBe('abcdefghijklmnopqrst');
    expect(warned).toEqual([]);
  });

  test('passes an answer head up to HEADER_BYTES_MAX', async () => {
    await restart('', 32_768);
    says = () => `HTTP/1.1 200 OK\r\nX-A: ${'a'.repeat(30_000)}\r\nContent-Length: 2\r\n\r\nok`;
    expect((await ask().response()).headers['x-a']).toHaveLength(30_000);
    await restart('', 4096);
    expect((await ask().response()).status).toBe(502);
  });

  test('logs each fault once a second, with a count', async () => {
    says = () => 'no\r\n\r\n';
    for (let i = 0; i < 20; i++) expect((await ask().response()).status).toBe(502);
    expect(warned.length).toBeLessThan(20);
    await eventually(() => {
      if (warned.length < 2) ask();
      return warned.length > 1;
    });
    expect(warned[1]).toMatchObject({ fault: 'invalid', unsaid: expect.toSatisfy((n) => n > 0) });
  });

  test('never leaves the path of UPSTREAM_URL', async () => {
    await restart('/behind');
    says = () => OK;
    for (const path of [
      '/..',
      '/../admin',
      '/a/../../admin',
      '/./../admin',
      '//../admin',
      '/%2e%2e/admin',
      '/%2E./admin',
      '/.%2e%2fadmin',
      '/..%2fadmin',
      '/..%5cadmin',
      '/..\\admin',
      '/..;/admin',
      '/..;a=b/admin',
      '/a;b/..;c/../admin',
      '/%252e%252e/admin',
      '/..%00/admin',
      '/..%20/admin',
      '/x%2f..%2f../admin',
    ]) {
      const { status, headers } = await ask(`GET ${path} HTTP/1.1`).response();
      expect([path, status, headers['content-type']]).toEqual([path, 400, 'application/problem+json']);
    }
    expect(seen).toEqual([]);
    for (const path of ['/a/../b', '/a..b/c', '/...', '/a?/../..', '/a/%2e%2e/b', '/100%', '/%zz', '/..a']) {
      expect([path, (await ask(`GET ${path} HTTP/1.1`).response()).status]).toEqual([path, 200]);
      expect(seen.at(-1)).toContain(`GET /behind${path} HTTP/1.1\r\n`);
    }
    await restart('');
    expect((await ask('GET /../a HTTP/1.1').response()).status).toBe(200);
  });

  test('passes on no spelling of a header of ours', async () => {
    says = () => OK;
    const spelt = [
      ...['X.Key.Id: evil', 'X_Key_Id: evil', 'x-key_id: evil', 'X~Key~Name: evil', "X'Key-Role: evil"],
      ...['X_Api_Key: evil', 'X.Api.Key: evil', 'X_Forwarded_For: evil', 'X.Forwarded-For: evil'],
      ...['X_Request_Id: evil', 'Content_Length: 9', 'Transfer_Encoding: evil', 'Content.Length: 9'],
    ];
    const kept = ['X_Own_Header: a', 'X.Own: b', 'X-Keys-Id: c', 'My_X_Key_Id: d'];
    expect((await ask('GET / HTTP/1.1', [...spelt, ...kept]).response()).status).toBe(200);
    const lines = seen[0]?.split('\r\n') ?? [];
    expect(lines.filter((line) => /evil|: 9$/.test(line))).toEqual([]);
    expect(lines).toEqual(expect.arrayContaining(kept));
    expect(lines).toContain('X-Key-Id: key_good');
  });
});
