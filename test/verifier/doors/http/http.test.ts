import { createServer } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '#shared/process/clock.ts';
import { loadConfig } from '#shared/process/load-config.ts';
import { type HttpLimits, httpSettings, type Routes } from '../../../../verifier/doors/http/server.ts';
import { Metrics } from '../../../../verifier/metrics/metrics.ts';
import { createVerifierServer, type VerifierServer } from '../../../../verifier/verifier-server.ts';
import { limits, ScriptedAnswers } from '../../../harness/scripted-answers.ts';
import { eventually } from '../../../harness/waiting.ts';
import { verifyKey, Wire } from '../../../harness/wire.ts';

describe.each([
  ['with the fast lane', true],
  ['without', false],
])('%s', (_lane, FAST_LANE) => {
  let answers: ScriptedAnswers;
  let bugs: unknown[];
  let server: VerifierServer;
  let address: string;
  const wires: Wire[] = [];

  async function start(changed: Partial<HttpLimits> = {}, routes: Partial<Routes> = {}): Promise<void> {
    answers = new ScriptedAnswers();
    bugs = [];
    server = createVerifierServer({
      verifier: answers,
      limits: { ...limits, FAST_LANE, ...changed },
      log: { error: (fields: unknown) => void bugs.push(fields) },
      routes,
    });
    address = await server.listen('127.0.0.1', 0);
  }

  async function restart(changed: Partial<HttpLimits>, routes?: Partial<Routes>): Promise<void> {
    await server.close(0);
    await start(changed, routes);
  }

  function wire(): Wire {
    const made = new Wire(address);
    wires.push(made);
    return made;
  }

  const ask = (request: string | Uint8Array) => wire().send(request).response();
  const post = (body: unknown, headers?: readonly string[]) => ask(verifyKey(body, headers));

  /** Checks that a response is the contract's error and returns its message. */
  function errorOf(response: { status: number; headers: Record<string, string>; body: string }) {
    const { error, ...others } = JSON.parse(response.body);
    expect(others).toEqual({});
    const details = error.code === 'BAD_REQUEST' ? ['details'] : [];
    expect(Object.keys(error)).toEqual(['code', 'message', ...details, 'docs', 'requestId']);
    const lines = details.length > 0 ? error.message.split('\n') : [];
    const fields = (error.details ?? []).map(
      ({ field, rule, fix }: Record<string, string>) => `${field}: ${fix ? `${rule}; ${fix}` : rule}`,
    );
    expect(fields).toEqual(lines.map((line: string) => (/^[\w.-]+: /.test(line) ? line : `body: ${line}`)));
    expect(error.docs).toBe(`/docs/errors#${error.code}`);
    expect(error.requestId).toBe(response.headers['x-request-id']);
    expect(response.headers['content-type']).toBe('application/json; charset=utf-8');
    expect(response.headers['cache-control']).toBe('no-store');
    return { status: response.status, code: error.code, message: error.message };
  }

  beforeEach(() => start());
  afterEach(async () => {
    for (const made of wires.splice(0)) made.close();
    answers.release();
    await server.close(0);
  });

  describe('verifyKey', () => {
    test('every verdict is 200 with the fields of its code and no others', async () => {
      const known = (name: string, enabled: boolean) => ({
        keyId: `key_${name}`,
        apiId: 'payments',
        enabled,
        meta: {},
      });
      const outcomes = {
        good: { valid: true, code: 'VALID', ...known('good', true) },
        disabled: { valid: false, code: 'DISABLED', ...known('disabled', false) },
        expired: { valid: false, code: 'EXPIRED', ...known('expired', true), expires: 1 },
        other: { valid: false, code: 'FORBIDDEN' },
        unknown: { valid: false, code: 'NOT_FOUND' },
        'remote-good': { valid: true, code: 'VALID', ...known('good', true) },
      };
      for (const [key, outcome] of Object.entries(outcomes)) {
        const response = await post({ key });
        expect(response.status).toBe(200);
        expect(response.headers).toMatchObject({
          'content-type': 'application/json; charset=utf-8',
          'cache-control': 'no-store',
          connection: 'keep-alive',
        });
        expect(JSON.parse(response.body)).toEqual({
          ...outcome,
          requestId: response.headers['x-request-id'],
        });
      }
    });

    test('tells nothing of a key of another API', async () => {
      expect(JSON.parse((await post({ key: 'good', apiId: 'payments' })).body).code).toBe('VALID');
      for (const name of ['good', 'rich', 'disabled', 'expired', 'remote-disabled', 'remote-expired']) {
        const { headers, body } = await post({ key: name, apiId: 'billing' });
        expect(JSON.parse(body), name).toEqual({
          valid: false,
          code: 'FORBIDDEN',
          requestId: headers['x-request-id'],
        });
      }
    });

    test('names and meta beyond ASCII arrive whole', async () => {
      const response = await post({ key: 'rich' });
      expect(JSON.parse(response.body)).toMatchObject({
        name: 'Zoë "Z"',
        externalId: 'user_1',
        meta: { plan: '日本' },
        expires: 32_503_680_000_000,
      });
    });

    test('an Authorization header is ignored', async () => {
      for (const value of ['Bearer anything', 'nonsense']) {
        expect((await post({ key: 'good' }, [`Authorization: ${value}`])).status).toBe(200);
      }
    });

    test('takes the key as the client meant it', async () => {
      const longest = 'k'.repeat(512);
      for (const [body, key] of [
        ['{"key":"\\u0067ood"}', 'good'],
        ['{ "apiId" : "payments" ,\n"key" : "good" }', 'good'],
        ['{"key":"clé"}', 'clé'],
        [`{"key":"${longest}"}`, longest],
        ['{"key":"first","key":"last"}', 'last'],
      ] as const) {
        expect((await post(body)).status).toBe(200);
        expect(answers.asked.at(-1)).toBe(key);
      }
    });
  });

  describe('a wrong body is 400 naming the field and the rule, never the key', () => {
    const secret = 'sk_do_not_repeat_me';
    test.each([
      ['', 'body: required, a JSON object'],
      ['   ', 'body: is not JSON'],
      ['{', 'body: is not JSON'],
      [`{"key":"${secret}"`, 'body: is not JSON'],
      [`{"key":"${secret}"}}`, 'body: is not JSON'],
      ['\ufeff{"key":"good"}', 'body: is not JSON; leave out the byte-order mark at its beginning'],
      ['[]', 'body: must be a JSON object'],
      ['null', 'body: must be a JSON object'],
      [`"${secret}"`, 'body: must be a JSON object'],
      ['{}', 'key: required'],
      ['{"apiId":"payments"}', 'key: required'],
      ['{"key":null}', 'key: must be a string'],
      ['{"key":7}', 'key: must be a string'],
      [`{"key":["${secret}"]}`, 'key: must be a string'],
      ['{"key":""}', 'key: must have 1 to 512 characters'],
      [`{"key":"${secret.repeat(30)}"}`, 'key: must have 1 to 512 characters'],
      ['{"key":"\\ud800"}', 'key: must be Unicode text'],
      [`{"key":"${secret}","apiId":null}`, 'apiId: must be a string'],
      [`{"key":"${secret}","apiId":""}`, 'apiId: must match ^[A-Za-z0-9_-]{1,64}$'],
      [`{"key":"${secret}","apiId":"a b"}`, 'apiId: must match ^[A-Za-z0-9_-]{1,64}$'],
      [`{"key":"${secret}","apiId":"${'a'.repeat(65)}"}`, 'apiId: must match ^[A-Za-z0-9_-]{1,64}$'],
      [`{"key":"${secret}","ratelimit":{}}`, 'ratelimit: unknown field'],
      [`{"key":"${secret}","Key":"x"}`, 'Key: unknown field'],
      [
        `{"key":"${secret}","permissions":"a"}`,
        'permissions: unknown field; you mean authorization.permissions',
      ],
      [`{"__proto__":{"key":"${secret}"}}`, '__proto__: unknown field'],
      [`{"key":"${secret}","__proto__":{}}`, '__proto__: unknown field'],
      ['{"constructor":1}', 'constructor: unknown field'],
      [`{"key":"${secret}","${'x'.repeat(1000)}":1}`, `${'x'.repeat(64)}: unknown field`],
    ])('%#: %.40s', async (body, message) => {
      const response = await post(body);
      expect(errorOf(response)).toEqual({ status: 400, code: 'BAD_REQUEST', message });
      expect(response.raw).not.toContain(secret);
      expect(answers.asked).toEqual([]);
    });

    test('a body that is not UTF-8', async () => {
      const body = Buffer.concat([Buffer.from('{"key":"'), Buffer.from([0xc3, 0x28]), Buffer.from('"}')]);
      const head = `POST /v1/keys.verifyKey HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
      expect(errorOf(await ask(Buffer.concat([Buffer.from(head), body]))).message).toBe('body: is not UTF-8');
    });

    test('a query parameter', async () => {
      const request = verifyKey({ key: 'good' }).replace('verifyKey', 'verifyKey?key=x&b=1');
      expect(errorOf(await ask(request)).message).toBe('key: unknown query parameter');
      expect((await ask(verifyKey({ key: 'good' }).replace('verifyKey', 'verifyKey?'))).status).toBe(200);
    });
  });

  describe('content type and length', () => {
    test.each([
      'application/json',
      'application/json;charset=utf-8',
      'Application/JSON; charset="UTF-8"',
      'application/json ; a=b',
    ])('%s is fine', async (type) => {
      const request = verifyKey({ key: 'good' }).replace('application/json', type);
      expect((await ask(request)).status).toBe(200);
    });

    test.each(['text/plain', 'application/jsonp', 'application/json+x', 'application/problem+json', 'x'])(
      '%s is 415',
      async (type) => {
        const request = verifyKey({ key: 'good' }).replace('application/json', type);
        expect(errorOf(await ask(request))).toMatchObject({ status: 415, code: 'UNSUPPORTED_MEDIA_TYPE' });
      },
    );

    test('no content type is 415, no body is 400', async () => {
      const request = verifyKey({ key: 'good' });
      expect(errorOf(await ask(request.replace('Content-Type: application/json\r\n', ''))).status).toBe(415);
      const nothing = 'POST /v1/keys.verifyKey HTTP/1.1\r\nHost: a\r\n\r\n';
      expect(errorOf(await ask(nothing)).message).toBe('body: required, a JSON object');
    });

    const head = (more: string) =>
      `POST /v1/keys.verifyKey HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n${more}\r\n\r\n`;
    const tooLarge = { status: 413, code: 'PAYLOAD_TOO_LARGE', message: 'body: at most 65536 bytes' };

    test('a body at the limit is read, beyond it 413', async () => {
      const padded = (bytes: number) => `{"key":"good"${' '.repeat(bytes - 14)}}`;
      expect((await post(padded(65_536))).status).toBe(200);
      expect(errorOf(await post(padded(65_537)))).toEqual(tooLarge);
    });

    test('a body that is declared too large is refused before it arrives', async () => {
      expect(errorOf(await ask(head('Content-Length: 99999999')))).toEqual(tooLarge);
    });

    test('a chunked body has the same limit', async () => {
      const chunked = head('Transfer-Encoding: chunked');
      expect((await ask(`${chunked}6\r\n{"key"\r\n8\r\n:"good"}\r\n0\r\n\r\n`)).status).toBe(200);
      expect(errorOf(await ask(`${chunked}0\r\n\r\n`)).message).toBe('body: required, a JSON object');
      const much = wire().send(chunked);
      for (let i = 0; i < 40; i++) much.send(`4000\r\n${' '.repeat(0x4000)}\r\n`);
      const response = await much.response();
      expect(errorOf(response)).toEqual(tooLarge);
      expect(response.headers['connection']).toBe('close');
    });

    test('the connection outlives a refused short body', async () => {
      const one = wire();
      one.send(
        verifyKey({ key: 'good' }).replace('application/json', 'text/plain') + verifyKey({ key: 'good' }),
      );
      expect((await one.response()).status).toBe(415);
      expect((await one.response()).status).toBe(200);
    });
  });

  describe('paths and methods', () => {
    test.each(['GET', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])(
      '%s verifyKey is 405 with Allow',
      async (method) => {
        const response = await ask(verifyKey({ key: 'good' }, [], method));
        expect(errorOf(response)).toMatchObject({ status: 405, code: 'METHOD_NOT_ALLOWED' });
        expect(response.headers['allow']).toBe('POST');
      },
    );

    test('HEAD is 405 without a body', async () => {
      const one = wire().send('HEAD /v1/keys.verifyKey HTTP/1.1\r\nHost: a\r\n\r\n');
      expect((await one.response(true)).headers).toMatchObject({
        allow: 'POST',
        'cache-control': 'no-store',
      });
      one.send(verifyKey({ key: 'good' }));
      expect((await one.response()).status).toBe(200);
    });

    test.each([
      '/',
      '/v3/keys.verifyKey',
      '/v1/keys.verifykey',
      '/v1/keys.verifyKey/',
      '//v1/keys.verifyKey',
      '/v1/keys.createKey',
      '/%76%31/keys.verifyKey',
      '*',
      '/constructor',
    ])('%s is 404', async (path) => {
      const request = verifyKey({ key: 'good' }).replace('/v1/keys.verifyKey', path);
      expect(errorOf(await ask(request))).toEqual({
        status: 404,
        code: 'NOT_FOUND',
        message: 'no such path',
      });
    });

    test('CONNECT is 404, and the connection is closed', async () => {
      const one = wire().send('CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n');
      expect(errorOf(await one.response()).status).toBe(404);
      expect(await one.rest()).toBe('');
    });

    test('the linked page explains every code', async () => {
      const response = await ask('GET /docs/errors HTTP/1.1\r\nHost: a\r\n\r\n');
      expect(response.headers).toMatchObject({ 'content-type': 'text/html; charset=utf-8' });
      expect(response.headers['x-request-id']).toMatch(/^[\w.-]+$/);
      for (const code of ['BAD_REQUEST', 'SERVICE_UNAVAILABLE'])
        expect(response.body).toContain(`id="${code}"`);
      expect(errorOf(await ask('POST /docs/errors HTTP/1.1\r\nHost: a\r\n\r\n')).status).toBe(405);
    });

    test('other routes fail in the same shape', async () => {
      await restart(
        {},
        {
          exact: { '/status': { GET: (_request, response) => void response.end('up') } },
          below: [
            [
              '/authz/',
              (request, response, id) =>
                void response
                  .setHeader('x-seen', `${request.method} ${id}`)
                  .writeHead(200, { 'content-length': 0 })
                  .end(),
            ],
            ['/v1/', () => Promise.reject(new TypeError('a fault of ours'))],
          ],
        },
      );
      const seen = await ask('DELETE /authz/ext-authz/a?b HTTP/1.1\r\nHost: a\r\nX-Request-Id: abc\r\n\r\n');
      expect(seen.headers).toMatchObject({
        'x-seen': 'DELETE abc',
        'x-request-id': 'abc',
        'cache-control': 'no-store',
      });
      expect(errorOf(await ask('GET /v1/keys.getKey HTTP/1.1\r\nHost: a\r\n\r\n')).status).toBe(500);
      expect(errorOf(await ask('GET /v1/keys.verifyKey HTTP/1.1\r\nHost: a\r\n\r\n')).status).toBe(405);
      expect(bugs).toHaveLength(1);
    });
  });

  describe('request ids', () => {
    test('a well-formed one is kept, in head and body', async () => {
      const id = `a.b-c_${'9'.repeat(122)}`;
      const response = await post({ key: 'good' }, [`X-Request-Id: ${id}`]);
      expect(response.headers['x-request-id']).toBe(id);
      expect(JSON.parse(response.body).requestId).toBe(id);
    });

    test.each(['', 'a b', 'a,b', '<script>', 'x'.repeat(129), 'é'])('%.40s is replaced', async (id) => {
      const response = await post({ key: 'good' }, [`X-Request-Id: ${id}`]);
      expect(response.headers['x-request-id']).toMatch(/^[a-z0-9]{17,}$/);
      expect(JSON.parse(response.body).requestId).toBe(response.headers['x-request-id']);
    });

    test('a repeated one is replaced, each made anew', async () => {
      const twice = await post({ key: 'good' }, ['X-Request-Id: a', 'X-Request-Id: b']);
      const none = await post({ key: 'good' });
      expect(
        new Set(['a', 'b', 'a, b', twice.headers['x-request-id'], none.headers['x-request-id']]).size,
      ).toBe(5);
    });
  });

  describe('what HTTP itself refuses has the same shape', () => {
    const get = 'GET / HTTP/1.1\r\nHost: a\r\n';
    const chunks = `${verifyKey('').split('Content-Length')[0]}Transfer-Encoding: chunked\r\n\r\n`;
    test.each([
      ['no request at all', 'nonsense\r\n\r\n', 400],
      ['no Host', 'GET / HTTP/1.1\r\n\r\n', 400],
      ['two lengths', `${get}Content-Length: 1\r\nContent-Length: 2\r\n\r\n`, 400],
      ['a length and chunks', `${get}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n`, 400],
      ['a folded header', `${get}A: b\r\n c\r\n\r\n`, 400],
      ['a head over the limit', `${get}A: ${'b'.repeat(17_000)}\r\n\r\n`, 431],
      ['an expectation we do not know', `${get}Expect: miracles\r\n\r\n`, 417],
      ['a broken chunk', `${chunks}zz\r\n`, 400],
      ['too much chunk extension', `${chunks}1;${'a'.repeat(17_000)}\r\n`, 413],
      [
        'a broken chunk to a path that is refused anyway',
        `${get}Transfer-Encoding: chunked\r\n\r\nzz\r\n`,
        404,
      ],
    ])('%s', async (_name, request, status) => {
      expect(errorOf(await ask(request)).status).toBe(status);
      expect(answers.asked).toEqual([]);
      expect(bugs).toEqual([]);
    });

    test('answers nonsense after waiting requests', async () => {
      const one = wire().send(`${verifyKey({ key: 'slow-good' })}nonsense\r\n\r\n`);
      await eventually(() => answers.asked.length === 1);
      answers.release();
      expect(JSON.parse((await one.response()).body).code).toBe('VALID');
      expect(errorOf(await one.response()).status).toBe(400);
      expect(await one.rest()).toBe('');
    });

    test('a broken body is refused only after the requests before it are answered', async () => {
      const broken =
        'POST /v1/keys.verifyKey HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Request-Id: mine\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n';
      const one = wire().send(verifyKey({ key: 'slow-good' }) + broken);
      await eventually(() => answers.asked.length === 1);
      answers.release();
      expect(JSON.parse((await one.response()).body).code).toBe('VALID');
      const refusal = await one.response();
      expect(errorOf(refusal).status).toBe(400);
      expect(refusal.headers['x-request-id']).toBe('mine');
      expect(await one.rest()).toBe('');
    });

    test('a refusal reaches a half-closed client', async () => {
      const one = wire().send(`${verifyKey({ key: 'slow-good' })}nonsense\r\n\r\n`);
      one.socket.end();
      await eventually(() => answers.asked.length === 1);
      answers.release();
      expect((await one.response()).status).toBe(200);
      expect(errorOf(await one.response()).status).toBe(400);
    });

    test('nothing follows an answer that says close', async () => {
      for (const behind of [verifyKey({ key: 'good' }), 'nonsense\r\n\r\n']) {
        const one = wire().send(verifyKey({ key: 'good' }, ['Connection: close']) + behind);
        expect((await one.response()).status).toBe(200);
        expect(await one.rest()).toBe('');
      }
    });

    test('cuts a refused client that does not close', async () => {
      const one = wire().send('nonsense\r\n\r\n');
      await one.response();
      await eventually(() => one.socket.destroyed || one.ended);
      await server.close(60_000);
    });
  });

  describe('Expect: 100-continue', () => {
    const head = (length: number, type = 'application/json') =>
      `POST /v1/keys.verifyKey HTTP/1.1\r\nHost: a\r\nContent-Type: ${type}\r\nContent-Length: ${length}\r\nExpect: 100-continue\r\n\r\n`;

    test('the body is asked for, then judged', async () => {
      const one = wire().send(head(14));
      expect((await one.response()).status).toBe(100);
      one.send('{"key":"good"}');
      expect((await one.response()).status).toBe(200);
    });

    test('a refused body is not asked for', async () => {
      expect(errorOf(await ask(head(70_000))).status).toBe(413);
      expect(errorOf(await ask(head(14, 'text/plain'))).status).toBe(415);
      expect(errorOf(await ask(head(14).replace('POST', 'PUT'))).status).toBe(405);
    });
  });

  describe('outages and bugs', () => {
    test('an outage is 503 and no verdict', async () => {
      const response = await post({ key: 'down' });
      expect(errorOf(response)).toEqual({
        status: 503,
        code: 'SERVICE_UNAVAILABLE',
        message: 'no answer from Redis',
      });
      expect(response.headers['retry-after']).toBe('1');
      expect(bugs).toEqual([]);
    });

    test.each(['bug', 'remote-bug'])('%s: our fault is 500, detailed in the log', async (key) => {
      const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
      const response = await post({ key }, [`traceparent: 00-${trace}-00f067aa0ba902b7-01`]);
      expect(errorOf(response)).toMatchObject({ status: 500, code: 'INTERNAL_SERVER_ERROR' });
      expect(response.raw).not.toContain('fault of ours');
      expect(bugs).toMatchObject([
        {
          requestId: response.headers['x-request-id'],
          traceId: trace,
          err: { message: 'a fault of ours' },
        },
      ]);
    });

    test('refuses requests over the limit with 503', async () => {
      await restart({ REQUESTS_IN_FLIGHT_MAX: 2 });
      const two = [wire(), wire()].map((one) => one.send(verifyKey({ key: 'slow-good' })));
      await eventually(() => server.requestsInFlight === 2);
      expect(errorOf(await post({ key: 'remote-good' })).status).toBe(503);
      answers.release();
      for (const one of two) expect((await one.response()).status).toBe(200);
      await eventually(() => server.requestsInFlight === 0);
      expect((await post({ key: 'good' })).status).toBe(200);
    });
  });

  describe('connections', () => {
    test('only Connection: close and HTTP/1.0 end it', async () => {
      const closed = wire().send(verifyKey({ key: 'good' }, ['Connection: close']));
      expect((await closed.response()).headers['connection']).toBe('close');
      expect(await closed.rest()).toBe('');
      const old = wire().send(verifyKey({ key: 'good' }).replace('HTTP/1.1', 'HTTP/1.0'));
      expect((await old.response()).headers['connection']).toBe('close');
      expect(await old.rest()).toBe('');
      const kept = wire().send(verifyKey({ key: 'good' }));
      expect((await kept.response()).headers).toMatchObject({
        connection: 'keep-alive',
        'keep-alive': 'timeout=90',
      });
      kept.send(verifyKey({ key: 'good' }));
      expect((await kept.response()).status).toBe(200);
    });

    test('requests sent at once are answered in order', async () => {
      const keys = ['good', 'slow-disabled', 'unknown', 'down', 'remote-good', 'bug'];
      const one = wire().send(keys.map((key, i) => verifyKey({ key }, [`X-Request-Id: ${i}`])).join(''));
      expect((await one.response()).headers['x-request-id']).toBe('0');
      answers.release();
      for (let i = 1; i < keys.length; i++)
        expect((await one.response()).headers['x-request-id']).toBe(`${i}`);
    });

    test('answers a client that ends its side', async () => {
      const one = wire().send(verifyKey({ key: 'slow-good' }));
      one.socket.end();
      await eventually(() => answers.asked.length === 1);
      answers.release();
      expect((await one.response()).status).toBe(200);
      expect(await one.rest()).toBe('');
    });

    test('a client that leaves disturbs nobody', async () => {
      const one = wire().send(verifyKey({ key: 'slow-good' }));
      await eventually(() => server.requestsInFlight === 1);
      one.socket.resetAndDestroy();
      answers.release();
      await eventually(() => server.requestsInFlight === 0);
      expect((await post({ key: 'good' })).status).toBe(200);
      expect(bugs).toEqual([]);
    });

    test('a slow request gets 408, head and body', async () => {
      await restart({ HEADERS_TIMEOUT_MS: 100, REQUEST_TIMEOUT_MS: 200 });
      for (const part of ['POST /v1/ke', verifyKey({ key: 'good' }).slice(0, -3)]) {
        const one = wire().send(part);
        expect(errorOf(await one.response())).toMatchObject({ status: 408, code: 'REQUEST_TIMEOUT' });
        expect(await one.rest()).toBe('');
      }
    });

    test('an idle connection is closed', async () => {
      await restart({ KEEP_ALIVE_TIMEOUT_MS: 100 });
      const one = wire().send(verifyKey({ key: 'good' }, ['TE: trailers']));
      await one.response();
      expect(await one.rest()).toBe('');
    });

    test('closes only connections over the limit', async () => {
      await restart({ CONNECTIONS_MAX: 1 });
      const first = wire().send(verifyKey({ key: 'good' }));
      await first.response();
      expect(await wire().rest()).toBe('');
      first.send(verifyKey({ key: 'good' }));
      expect((await first.response()).status).toBe(200);
    });
  });

  describe('closing', () => {
    test('answers what waits and refuses new ones', async () => {
      const idle = wire().send(verifyKey({ key: 'good' }));
      await idle.response();
      const busy = wire().send(verifyKey({ key: 'slow-good' }));
      await eventually(() => server.requestsInFlight === 1);
      const closed = server.close(60_000);
      expect(await idle.rest()).toBe('');
      await expect(
        wire()
          .send(verifyKey({ key: 'good' }))
          .response(),
      ).rejects.toThrow('ended');
      answers.release();
      const response = await busy.response();
      expect(response.status).toBe(200);
      expect(response.headers['connection']).toBe('close');
      await closed;
    });

    test('answers what had reached the machine before', async () => {
      const one = wire().send(verifyKey({ key: 'good' }));
      await one.response();
      one.send(verifyKey({ key: 'good' }));
      const [response] = await Promise.all([one.response(), server.close(60_000)]);
      expect(response.status).toBe(200);
    });

    test('what is not done within the grace is cut', async () => {
      const stuck = wire().send(verifyKey({ key: 'slow-good' }));
      const partial = wire().send('POST /v1/keys');
      await eventually(() => server.requestsInFlight === 1);
      await server.close(50);
      expect(await stuck.rest()).toBe('');
      expect(await partial.rest()).toBe('');
    });
  });

  test('counts each verdict once, and no refusal', async () => {
    await server.close(0);
    const metrics = new Metrics();
    answers = new ScriptedAnswers();
    server = createVerifierServer({
      verifier: metrics.count(answers, systemClock),
      limits: { ...limits, FAST_LANE },
      log: { error: () => undefined },
    });
    address = await server.listen('127.0.0.1', 0);
    for (const key of ['good', 'good', 'disabled', 'remote-good', 'down', 'remote-wrong', 'bug', ''])
      await post({ key });
    const { values } = (await metrics.registry.getSingleMetric('keyfence_verdicts_total')?.get()) ?? {};
    const counted = values
      ?.filter(({ value }) => value > 0)
      .map(({ labels, value }) => ({ ...labels, value }));
    expect(counted).toEqual([
      { code: 'VALID', source: 'memory', value: 2 },
      { code: 'DISABLED', source: 'memory', value: 1 },
      { code: 'VALID', source: 'redis', value: 1 },
    ]);
    // Those answered 503 alone: a question that is wrong is no outage.
    const undecided = await metrics.registry.getSingleMetric('keyfence_undecided_total')?.get();
    expect(undecided?.values.reduce((sum, { value }) => sum + value, 0)).toBe(1);
  });

  test('a port in use is an error', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => other.once('listening', resolve));
    const { port } = other.address() as { port: number };
    const second = createVerifierServer({ verifier: answers, limits, log: { error: () => undefined } });
    await expect(second.listen('127.0.0.1', port)).rejects.toMatchObject({ code: 'EADDRINUSE' });
    await new Promise((resolve) => other.close(resolve));
  });

  test('the default settings obey their own rules', () => {
    expect(loadConfig(httpSettings, {})).toMatchObject({ CONNECTIONS_MAX: 10_000 });
  });
});
