import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '#shared/process/clock.ts';
import { AnonymousLimit } from '../../../../verifier/doors/http/anonymous-limit.ts';
import { type AuthzSettings, WrongQuestions } from '../../../../verifier/doors/http/authz.ts';
import { ClientIps } from '../../../../verifier/doors/http/credentials.ts';
import { TrustedProxies } from '../../../../verifier/doors/http/trusted-proxies.ts';
import { createVerifierServer, type VerifierServer } from '../../../../verifier/verifier-server.ts';
import { limits, ScriptedAnswers } from '../../../harness/scripted-answers.ts';
import { Wire } from '../../../harness/wire.ts';

const AUTH = '/authz/auth-request';
const FORWARD = '/authz/forward-auth';
const EXT = '/authz/ext-authz';
/** Each dialect's path as its gateway asks it, and the headers that say what the client asked for. */
const DIALECTS = {
  'auth-request': [AUTH, 'X-Original-Method', 'X-Original-URI'],
  'forward-auth': [FORWARD, 'X-Forwarded-Method', 'X-Forwarded-Uri'],
  'ext-authz': [`${EXT}/orders/1?a=b`, '', ''],
} as const;
const dialects = Object.entries(DIALECTS);

let fastLane: boolean;
let answers: ScriptedAnswers;
let server: VerifierServer;
let address: string;
let bugs: unknown[];
const wires: Wire[] = [];

async function start(changed: Partial<AuthzSettings> = {}, inFlightMax = 1000): Promise<void> {
  answers = new ScriptedAnswers();
  bugs = [];
  const settings: AuthzSettings = {
    sources: ['bearer', 'x-api-key'],
    withMeta: false,
    allowPreflight: false,
    needsApi: false,
    ...changed,
  };
  server = createVerifierServer({
    verifier: answers,
    limits: { ...limits, FAST_LANE: fastLane, REQUESTS_IN_FLIGHT_MAX: inFlightMax },
    log: { error: (fields: unknown) => void bugs.push(fields) },
    authz: settings,
  });
  address = await server.listen('127.0.0.1', 0);
}

async function restart(changed: Partial<AuthzSettings>, inFlightMax?: number): Promise<void> {
  await server.close(0);
  await start(changed, inFlightMax);
}

function ask(path: string, headers: readonly string[] = [], method = 'GET', body = '') {
  const wire = new Wire(address);
  wires.push(wire);
  wire.send([`${method} ${path} HTTP/1.1`, 'Host: verifier', ...headers, '', body].join('\r\n'));
  return wire.response(method === 'HEAD');
}

const bearer = (key: string) => `Authorization: Bearer ${key}`;

/** Checks that a response is a refusal in the form that may be handed to a client, and returns what it says. */
function refusalOf(response: Awaited<ReturnType<typeof ask>>) {
  const { status, headers, body } = response;
  expect(headers['content-type']).toBe('application/problem+json');
  expect(headers['cache-control']).toBe('no-store');
  expect(Number(headers['content-length'])).toBe(Buffer.byteLength(body));
  expect(Buffer.byteLength(body)).toBeLessThan(1024);
  expect(Object.keys(headers).filter((name) => name.startsWith('x-key-'))).toEqual([]);
  const problem = JSON.parse(body);
  expect(problem.status).toBe(status);
  expect(problem.requestId).toBe(headers['x-request-id']);
  return { status, code: problem.code, challenge: headers['www-authenticate'] };
}

describe.each([
  ['with the fast lane', true],
  ['without', false],
])('%s', (_lane, lane) => {
  beforeEach(() => {
    fastLane = lane;
    return start();
  });
  afterEach(async () => {
    for (const wire of wires.splice(0)) wire.close();
    answers.release();
    await server.close(0);
  });

  describe.each(dialects)('%s', (_dialect, [path, methodHeader, targetHeader]) => {
    test('allows with 200 and every identity header', async () => {
      const response = await ask(path, [bearer('good')]);
      expect(response).toMatchObject({ status: 200, body: '' });
      const { 'x-request-id': id, date, ...headers } = response.headers;
      expect(id).toBeDefined();
      expect(date).toBeDefined();
      expect(headers).toEqual({
        'cache-control': 'no-store',
        'content-length': '0',
        'x-key-id': 'key_good',
        'x-key-api-id': 'payments',
        'x-key-name': '',
        'x-key-external-id': '',
        connection: 'keep-alive',
        'keep-alive': 'timeout=90',
      });
      const rich = await ask(path, [bearer('rich')]);
      expect(rich.headers).toMatchObject({ 'x-key-name': 'Zo%C3%AB%20"Z"', 'x-key-external-id': 'user_1' });
      expect(rich.headers).not.toHaveProperty('x-key-meta');
    });

    test('tells a token where that is switched on', async () => {
      await restart({ stamps: ['X-Key-Token'] });
      const tokenOf = async (...lines: string[]) => (await ask(path, lines)).headers['x-key-token'];
      expect(await tokenOf(bearer('good'), 'X-Key-Token: mine')).toBe('token.of.good');
      expect(await tokenOf(bearer('remote-rich'))).toBe('token.of.rich');
      expect(await tokenOf(bearer('permitted'))).toBe('');
      expect(await tokenOf(bearer('disabled'))).toBeUndefined();
    });

    test('lets nobody pass where keys are optional', async () => {
      const optional = path.replace('/authz/', '/authz/api/payments/require/a/optional/');
      for (const lines of [[], ['Authorization: Basic dTpw'], ['X-Key-Id: boss', 'Authorization: Bearer']]) {
        const { status, headers, body } = await ask(optional, lines);
        expect([status, body]).toEqual([200, '']);
        expect(headers).toMatchObject({ 'x-key-id': '', 'x-key-api-id': '', 'cache-control': 'no-store' });
        expect(headers).toMatchObject({ 'x-key-name': '', 'x-key-external-id': '' });
      }
      expect(answers.asked).toEqual([]);
      const statusOf = async (...lines: string[]) => (await ask(optional, lines)).status;
      expect(await statusOf(bearer('permitted'))).toBe(200);
      expect(await statusOf(bearer('good'))).toBe(403);
      for (const key of ['nobody', 'disabled']) expect(await statusOf(bearer(key))).toBe(401);
      for (const line of ['Bearer\tpermitted', 'Bearer:permitted', 'permitted'])
        expect(await statusOf(`Authorization: ${line}`)).toBe(401);
      expect(await statusOf(bearer('permitted'), 'X-Api-Key: other')).toBe(401);
      for (const wrong of ['/authz/optional/require/a/', '/authz/optional/optional/', '/authz/Optional/'])
        expect((await ask(path.replace('/authz/', wrong))).status).toBe(404);
      expect((await ask(path)).status).toBe(401);
    });

    test('limits nobody by address', async () => {
      const clientIps = new ClientIps('x-client-ip', new TrustedProxies([]));
      const limit = { limit: 2, durationMs: 86_400_000 };
      await restart({ clientIps, anonymousLimit: new AnonymousLimit(limit, systemClock) });
      const optional = path.replace('/authz/', '/authz/optional/');
      const from = (address: string) => ask(optional, [`X-Client-IP: ${address}`]);
      for (const address of ['192.0.2.1', '2001:db8::1', '::ffff:192.0.2.1', '2001:db8::2'])
        expect((await from(address)).status).toBe(200);
      for (const address of ['192.0.2.1', '2001:db8::3']) {
        const { status, headers, body } = await from(address);
        expect(status).toBe(path === AUTH ? 403 : 429);
        expect(headers).toMatchObject({
          'x-key-code': 'RATE_LIMITED',
          'retry-after': expect.stringMatching(/^\d+$/),
          'ratelimit-policy': '"anonymous";q=2;w=86400',
        });
        expect(JSON.parse(body)).toMatchObject({
          code: 'RATE_LIMITED',
          detail: expect.stringContaining('without an API key'),
        });
      }
      expect((await ask(optional, [bearer('good'), 'X-Client-IP: 192.0.2.1'])).status).toBe(200);
    });

    test('refuses with 401, or 403 for another API', async () => {
      const realm = 'Bearer realm="api"';
      const invalid = `${realm}, error="invalid_token"`;
      const expected = {
        unknown: { status: 401, code: 'NOT_FOUND', challenge: invalid },
        disabled: { status: 401, code: 'DISABLED', challenge: invalid },
        expired: { status: 401, code: 'EXPIRED', challenge: invalid },
        other: { status: 403, code: 'FORBIDDEN', challenge: undefined },
        'remote-disabled': { status: 401, code: 'DISABLED', challenge: invalid },
      };
      for (const [key, refusal] of Object.entries(expected))
        expect(refusalOf(await ask(path, [bearer(key)])), key).toEqual(refusal);
      expect(refusalOf(await ask(path))).toEqual({ status: 401, code: 'KEY_MISSING', challenge: realm });
      const twice = [`X-Api-Key: good`, 'x-api-key: good'];
      for (const headers of [twice, [bearer('good'), bearer('good')], [bearer('good'), 'X-Api-Key: rich']])
        expect(refusalOf(await ask(path, headers))).toEqual({
          status: 401,
          code: 'KEY_AMBIGUOUS',
          challenge: `${realm}, error="invalid_request"`,
        });
      expect(answers.asked).not.toContain('rich');
    });

    test('answers 503 if undecided, hiding the cause', async () => {
      const down = await ask(path, [bearer('down')]);
      expect(refusalOf(down)).toEqual({ status: 503, code: 'SERVICE_UNAVAILABLE', challenge: undefined });
      expect(down.headers['retry-after']).toBe('1');
      expect(down.body).not.toContain('Redis');
    });

    test('answers 503 under load in the same form', async () => {
      await restart({}, 1);
      const waiting = ask(path, [bearer('slow-good')]);
      await expect.poll(() => server.requestsInFlight).toBe(1);
      expect(refusalOf(await ask(path, [bearer('remote-good')]))).toMatchObject({ status: 503 });
      answers.release();
      expect(await waiting).toMatchObject({ status: 200 });
    });

    test('answers 500 to our own fault, same form', async () => {
      for (const key of ['bug', 'remote-bug'])
        expect(refusalOf(await ask(path, [bearer(key)]))).toMatchObject({ status: 500 });
      expect(bugs).toHaveLength(2);
    });

    test('asks for the API that the path names', async () => {
      const at = (apiId: string) => path.replace('/authz/', `/authz/api/${apiId}/`);
      expect(await ask(at('payments'), [bearer('good')])).toMatchObject({ status: 200 });
      for (const name of ['good', 'rich', 'disabled', 'expired', 'remote-disabled']) {
        const refused = await ask(at('shop'), [bearer(name)]);
        expect(refusalOf(refused), name).toMatchObject({ status: 403, code: 'FORBIDDEN' });
        expect(Object.keys(refused.headers).join(), name).not.toContain('x-key-');
        expect(refused.body, name).not.toMatch(/key_|payments|disabled|expired/i);
      }
      const spoofed = [
        'X-Key-Api-Id: payments',
        'X-Forwarded-Uri: /authz/api/payments/forward-auth',
        bearer('good'),
      ];
      expect(
        refusalOf(await ask(`${at('shop')}${path.includes('?') ? '&' : '?'}apiId=payments`, spoofed)),
      ).toMatchObject({ status: 403 });
    });

    test('asks for the permissions the path names', async () => {
      const needing = (query: string, scope = '') =>
        path.replace('/authz/', `/authz/${scope}require/${encodeURIComponent(query)}/`);
      for (const scope of ['', 'api/payments/']) {
        for (const query of ['a', 'b.c AND a', 'd OR (a AND b.c)'])
          for (const name of ['permitted', 'remote-permitted'])
            expect(await ask(needing(query, scope), [bearer(name)]), query).toMatchObject({ status: 200 });
        for (const name of ['permitted', 'remote-permitted', 'good']) {
          const lines = ['X-Require: a', 'X-Forwarded-Uri: /authz/require/a/forward-auth', bearer(name)];
          const refused = await ask(needing('a AND d', scope), lines);
          expect(refusalOf(refused), name).toMatchObject({ status: 403, code: 'INSUFFICIENT_PERMISSIONS' });
        }
      }
      expect(refusalOf(await ask(needing('a', 'api/shop/'), [bearer('permitted')]))).toMatchObject({
        code: 'FORBIDDEN',
      });
      expect(refusalOf(await ask(needing('d'), [bearer('disabled')]))).toMatchObject({ code: 'DISABLED' });
      for (const query of ['a AND', 'a/b', '(', 'a b', '%zz', ' '])
        expect(refusalOf(await ask(needing(query), [bearer('permitted')])), query).toMatchObject({
          ...{ status: 400, code: 'BAD_REQUEST' },
        });
      for (const wrong of ['require/', 'require/a', 'require//', 'require/%/', 'require/a/require/a/'])
        expect(
          (await ask(path.replace('/authz/', `/authz/${wrong}`), [bearer('permitted')])).status,
        ).not.toBe(200);
    });

    test('takes any method, and HEAD as GET', async () => {
      for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND']) {
        expect(await ask(path, [bearer('good')], method)).toMatchObject({ status: 200 });
        expect(refusalOf(await ask(path, [bearer('disabled')], method))).toMatchObject({ status: 401 });
      }
      const head = await ask(path, [bearer('disabled')], 'HEAD');
      expect(head.status).toBe(401);
      expect(Number(head.headers['content-length'])).toBeGreaterThan(0);
    });

    test('looks at no body', async () => {
      const headers = [bearer('good'), 'Content-Type: application/json', 'Content-Encoding: gzip'];
      expect(await ask(path, headers)).toMatchObject({ status: 200 });
      expect(await ask(path, [...headers, 'Content-Length: 0'], 'POST')).toMatchObject({ status: 200 });
      expect(await ask(path, [...headers, 'Content-Length: 3'], 'POST', '{"k')).toMatchObject({
        status: 200,
      });
    });

    test('ignores what the client says of its identity', async () => {
      const response = await ask(path, [
        bearer('good'),
        'X-Key-Id: key_admin',
        'X-Key-Name: admin',
        'Connection: Upgrade',
        'Upgrade: websocket',
        'Accept: text/plain',
      ]);
      expect(response).toMatchObject({ status: 200 });
      expect(response.headers).toMatchObject({ 'x-key-id': 'key_good', 'x-key-name': '' });
    });

    test('reads a key in the query only if enabled', async () => {
      const at = (target: string): [string, string[]] =>
        targetHeader === '' ? [`${EXT}${target}`, []] : [path, [`${targetHeader}: ${target}`]];
      expect(refusalOf(await ask(...at('/a?api_key=good')))).toMatchObject({ code: 'KEY_MISSING' });
      await restart({ sources: ['bearer', 'query'] });
      expect(await ask(...at('/a?api_key=good'))).toMatchObject({ status: 200 });
      expect(refusalOf(await ask(...at('/a?api_key=good&api_key=good')))).toMatchObject({
        code: 'KEY_AMBIGUOUS',
      });
      if (targetHeader !== '') {
        expect(refusalOf(await ask(`${path}?api_key=good`))).toMatchObject({ code: 'KEY_MISSING' });
        const target = `${targetHeader}: /a?api_key=good`;
        expect(refusalOf(await ask(path, [target, target]))).toMatchObject({ code: 'KEY_MISSING' });
      }
    });

    test('refuses a preflight unless enabled', async () => {
      const asIf = (method: string, ...headers: string[]) =>
        methodHeader === ''
          ? ask(path, headers, method)
          : ask(path, [`${methodHeader}: ${method}`, ...headers]);
      const preflight = ['Origin: https://app.example', 'Access-Control-Request-Method: POST'];
      expect(refusalOf(await asIf('OPTIONS', ...preflight))).toMatchObject({ code: 'KEY_MISSING' });
      await restart({ allowPreflight: true });
      const allowed = await asIf('OPTIONS', ...preflight);
      expect(allowed).toMatchObject({ status: 200, body: '' });
      expect(allowed.headers).toMatchObject({ 'x-key-id': '', 'x-key-api-id': '', 'x-key-external-id': '' });
      for (const [method, ...headers] of [
        ['POST', ...preflight],
        ['OPTIONS', preflight[0] ?? ''],
        ['OPTIONS', preflight[1] ?? ''],
        ['OPTIONS'],
      ] as [string, ...string[]][])
        expect(refusalOf(await asIf(method, ...headers))).toMatchObject({ code: 'KEY_MISSING' });
      if (methodHeader !== '') {
        expect(refusalOf(await ask(path, preflight, 'OPTIONS'))).toMatchObject({ code: 'KEY_MISSING' });
        const both = [`${methodHeader}: OPTIONS`, `${methodHeader}: OPTIONS`, ...preflight];
        expect(refusalOf(await ask(path, both))).toMatchObject({ code: 'KEY_MISSING' });
      }
    });

    test('tells meta if enabled, empty if too long', async () => {
      await restart({ withMeta: true });
      const meta = async (key: string) => (await ask(path, [bearer(key)])).headers['x-key-meta'];
      expect(await meta('good')).toBe('{}');
      expect(await meta('rich')).toBe('{"plan":"\\u65e5\\u672c"}');
    });

    test('keeps the connection, whatever it answered', async () => {
      const wire = new Wire(address);
      wires.push(wire);
      for (const key of ['good', 'disabled', 'down', 'other', 'good']) {
        wire.send(`GET ${path} HTTP/1.1\r\nHost: verifier\r\n${bearer(key)}\r\n\r\n`);
        expect((await wire.response()).headers['connection']).toBe('keep-alive');
      }
    });
  });

  test('never reads the path of Envoy as ours', async () => {
    for (const rest of [
      '',
      '/',
      '/?apiId=x',
      '/../../v1/keys.verifyKey',
      '//authz/api/shop/ext-authz',
      '*',
      '?a',
      '/%00%2f..;\\',
    ])
      expect(await ask(`${EXT}${rest}`, [bearer('good')]), rest).toMatchObject({ status: 200 });
  });

  test('a challenge names the places of keys', async () => {
    for (const [sources, missing, invalid] of [
      [['bearer', 'header:k'], 'Bearer realm="api"', 'Bearer realm="api", error="invalid_token"'],
      [['basic', 'header:k'], 'Basic realm="api"', 'Basic realm="api"'],
      [
        ['bearer', 'basic', 'header:k'],
        'Basic realm="api", Bearer realm="api"',
        'Basic realm="api", Bearer realm="api", error="invalid_token"',
      ],
      [['header:k'], 'ApiKey realm="api"', 'ApiKey realm="api"'],
    ] as const) {
      await restart({ sources });
      expect(refusalOf(await ask(FORWARD))).toMatchObject({ status: 401, challenge: missing });
      expect(refusalOf(await ask(FORWARD, ['K: disabled']))).toMatchObject({
        status: 401,
        challenge: invalid,
      });
    }
  });

  test('a path names its API, or any', async () => {
    const faults: unknown[] = [];
    const log = { error: (fields: unknown) => void faults.push(fields) };
    await restart({ needsApi: true, wrongQuestions: new WrongQuestions(log, systemClock) });
    for (const [path, expected] of [
      ['/authz/api/payments/auth-request', 200],
      ['/authz/api/*/auth-request', 200],
      ['/authz/api/*/require/a/ext-authz/x', 403],
      ['/authz/api/other/forward-auth', 403],
      ['/authz/forward-auth', 400],
      ['/authz/require/a/auth-request', 400],
      ['/authz/optional/auth-request', 400],
      ['/authz/ext-authz/api/payments/x', 400],
      ['/authz/apis/payments/auth-request', 404],
      ['/authz/require/a/api/payments/auth-request', 404],
    ] as const) {
      // The lane remembers the last path.
      for (let i = 0; i < 2; i++)
        expect([path, (await ask(path, [bearer('good')])).status]).toEqual([path, expected]);
    }
    expect((await ask('/authz/optional/auth-request')).status).toBe(400);
    // One sentence for all.
    expect(faults).toEqual([
      {
        fault:
          'api/<apiId>/ in the path: required, with the API to which a key must belong, or * for any; or set API_IDS of the verifier',
        unsaid: 0,
      },
    ]);
  });

  test('a path that no dialect has allows nothing', async () => {
    for (const path of [
      '/authz/',
      '/authz/auth-request/',
      '/authz/auth-requests',
      '/authz/forward-auth/x',
      '/authz/ext-authzx/',
      '/authz/api/auth-request',
      '/authz/api/a.b/auth-request',
      `/authz/api/${'a'.repeat(65)}/ext-authz/`,
      '/AUTHZ/auth-request',
      '/authz',
    ])
      expect(await ask(path, [bearer('good')]), path).toMatchObject({ status: 404 });
  });
});
