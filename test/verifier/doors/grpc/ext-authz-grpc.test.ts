import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { type ChannelCredentials, Client, credentials, type ServiceError, status } from '@grpc/grpc-js';
import { load, type MethodDefinition } from '@grpc/proto-loader';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '#shared/process/clock.ts';
import { GRPC_INTERNAL } from '../../../../verifier/doors/grpc/check.ts';
import { type GrpcListener, listenGrpc } from '../../../../verifier/doors/grpc/server.ts';
import { AnonymousLimit } from '../../../../verifier/doors/http/anonymous-limit.ts';
import { type AuthzSettings, WrongQuestions } from '../../../../verifier/doors/http/authz.ts';
import { followCertificate } from '../../../../verifier/doors/http/tls.ts';
import { makeCertificate } from '../../../harness/certificates.ts';
import { verifierConfig } from '../../../harness/config.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { limits, ScriptedAnswers } from '../../../harness/scripted-answers.ts';
import { elapsed, eventually } from '../../../harness/waiting.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..', '..');
const SERVICE = 'envoy.service.auth.v3.Authorization';
const HEALTH = 'grpc.health.v1.Health';
const envoy = await load(join(import.meta.dirname, 'envoy.proto'), { keepCase: true, enums: Number });
const health = await load(join(ROOT, 'verifier/doors/grpc/health.proto'), { defaults: true });

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const TRACEPARENT = `00-${TRACE}-00f067aa0ba902b7-01`;

let answers: ScriptedAnswers;
let listener: GrpcListener;
let clients: Client[];
let bugs: unknown[];
const log = {
  info: () => undefined,
  warn: () => undefined,
  error: (fields: unknown) => void bugs.push(fields),
};

async function start(
  changed: Partial<AuthzSettings> = {},
  certificate?: ReturnType<typeof followCertificate>,
  bounds: Partial<typeof limits> = {},
) {
  answers = new ScriptedAnswers();
  const authz = {
    sources: ['bearer', 'x-api-key'],
    withMeta: false,
    allowPreflight: false,
    needsApi: false,
    ...changed,
  } as const;
  listener = await listenGrpc({
    verifier: answers,
    authz,
    metaFields: ['plan', 'seats', 'absent'],
    log,
    certificate,
    host: '127.0.0.1',
    port: 0,
    limits: { ...limits, ...bounds },
  });
}
beforeEach(async () => {
  [clients, bugs] = [[], []];
  await start();
});
afterEach(async () => {
  for (const client of clients) client.close();
  await listener.close(0);
  expect(bugs).toEqual([]);
});

function connected(to = listener.address, using: ChannelCredentials = credentials.createInsecure()): Client {
  const client = new Client(to, using);
  clients.push(client);
  return client;
}

function unary<T>(client: Client, service: typeof envoy, name: string, method: string, request: object) {
  const definition = (service[name] as Record<string, MethodDefinition<object, object>>)[method];
  if (definition === undefined) throw new Error(`no method ${method}`);
  const { path, requestSerialize, responseDeserialize } = definition;
  return new Promise<T>((resolve, reject) => {
    const deadline = Date.now() + 10_000;
    const done = (error: ServiceError | null, reply?: object) =>
      error ? reject(error) : resolve(reply as T);
    client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, { deadline }, done);
  });
}

interface Option {
  readonly header: { readonly key: string; readonly value: string };
  readonly append: { readonly value: boolean };
  readonly append_action: number;
}
interface Allowed {
  readonly headers: Option[];
  readonly headers_to_remove?: string[];
  readonly query_parameters_to_remove?: string[];
}
interface Reply {
  readonly status?: { readonly code?: number };
  readonly ok_response?: Allowed;
  readonly denied_response?: { readonly status: { code: number }; headers: Option[]; readonly body: string };
  readonly dynamic_metadata?: Metadata;
}
/** `google.protobuf.Struct`, as the library reads it. */
interface Metadata {
  readonly fields: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

const http = (headers: Record<string, string>, path = '/orders/1', method = 'GET') => ({
  id: 'mine-1',
  ...{ method, path, headers },
  host: 'shop.example',
  protocol: 'HTTP/1.1',
  size: -1,
});
const check = (request: object, extensions: Record<string, string> = {}, client = connected()) =>
  unary<Reply>(client, envoy, SERVICE, 'Check', {
    attributes: {
      source: { service: 'web', labels: { a: 'b' }, principal: 'spiffe://x' },
      request: { time: { seconds: 1 }, http: request },
      context_extensions: extensions,
      tls_session: { sni: 'shop.example' },
      from_the_future: 'unknown here',
    },
  });
const bearer = (key: string) => http({ ':path': '/orders/1', authorization: `Bearer ${key}` });
const told = (options: readonly Option[] = []) =>
  Object.fromEntries(options.map(({ header }) => [header.key, header.value]));

describe('Check', () => {
  test('sets every identity header, without the key', async () => {
    const spoofed = { 'x-key-id': 'admin', 'x-key-role': 'admin', x_key_id: 'admin', cookie: 'a=b' };
    const reply = await check(http({ 'x-api-key': 'rich', authorization: 'Bearer rich', ...spoofed }));
    expect(reply.status?.code ?? 0).toBe(0);
    const {
      headers = [],
      headers_to_remove = [],
      query_parameters_to_remove = [],
    }: Partial<Allowed> = reply.ok_response ?? {};
    expect(told(headers)).toEqual({
      'X-Key-Id': 'key_rich',
      'X-Key-Api-Id': 'payments',
      'X-Key-Name': 'Zo%C3%AB%20"Z"',
      'X-Key-External-Id': 'user_1',
    });
    for (const option of headers) expect(option).toMatchObject({ append: {}, append_action: 2 });
    expect(headers.map(({ append }) => append.value ?? false)).toEqual([false, false, false, false]);
    expect(headers_to_remove.toSorted()).toEqual(['authorization', 'x-api-key', 'x-key-role', 'x_key_id']);
    expect(query_parameters_to_remove).toEqual([]);
  });

  test('tells the other filters the code and the key', async () => {
    const metadataOf = async (key: string) => (await check(bearer(key))).dynamic_metadata?.fields;
    expect(await metadataOf('rich')).toEqual({
      code: { stringValue: 'VALID' },
      keyId: { stringValue: 'key_rich' },
      apiId: { stringValue: 'payments' },
      externalId: { stringValue: 'user_1' },
      meta: { structValue: { fields: { plan: { stringValue: '日本' } } } },
    });
    expect(await metadataOf('permitted')).toMatchObject({
      permissions: { listValue: { values: [{ stringValue: 'a' }, { stringValue: 'b.c' }] } },
    });
    const disabled = { code: { stringValue: 'DISABLED' }, keyId: { stringValue: 'key_disabled' } };
    expect(await metadataOf('disabled')).toMatchObject(disabled);
    for (const [key, code] of [
      ['nobody', 'NOT_FOUND'],
      ['other', 'FORBIDDEN'],
      ['down', 'SERVICE_UNAVAILABLE'],
    ] as const)
      expect(await metadataOf(key)).toEqual({ code: { stringValue: code } });
    expect((await check(http({}))).dynamic_metadata?.fields).toEqual({
      code: { stringValue: 'KEY_MISSING' },
    });
  });

  test('leaves the trace of the request as it is', async () => {
    const traced = { 'x-api-key': 'good', traceparent: TRACEPARENT, tracestate: 'a=1' };
    const { ok_response } = await check(http(traced));
    expect(ok_response?.headers_to_remove).toEqual(['x-api-key']);
    expect(Object.keys(told(ok_response?.headers))).not.toContain('traceparent');
  });

  test('tells empty identity headers too', async () => {
    const reply = await check(bearer('remote-good'));
    expect(told(reply.ok_response?.headers)).toMatchObject({ 'X-Key-Id': 'key_good', 'X-Key-Name': '' });
  });

  test('leaves an Authorization that is no key', async () => {
    await listener.close(0);
    await start({ sources: ['query'], withMeta: true, stamps: ['X-Key-Token'] });
    const reply = await check(http({ authorization: 'Basic dTpw' }, '/orders?api_key=rich&x=1'));
    expect(reply.ok_response?.headers_to_remove ?? []).toEqual([]);
    expect(reply.ok_response?.query_parameters_to_remove).toEqual(['api_key']);
    const encoded = await check(http({ authorization: 'Basic dTpw' }, '/orders?%61pi_key=rich&x=1'));
    expect(encoded.ok_response?.query_parameters_to_remove).toEqual(['api_key', '%61pi_key']);
    expect(told(reply.ok_response?.headers)).toMatchObject({
      'X-Key-Meta': '{"plan":"\\u65e5\\u672c"}',
      'X-Key-Token': 'token.of.rich',
    });
  });

  test('removes the key from where it may be alone', async () => {
    await listener.close(0);
    await start({ sources: ['basic', 'header:shop.key', 'cookie:k'] });
    const basic = `Basic ${Buffer.from(':good').toString('base64')}`;
    const removed = async (headers: Record<string, string>) => {
      const { ok_response } = await check(http({ 'x-api-key': 'own', ...headers }));
      return [ok_response?.headers_to_remove, told(ok_response?.headers)['Cookie']];
    };
    expect(await removed({ authorization: basic, cookie: 'a=1' })).toEqual([['authorization'], undefined]);
    expect(await removed({ 'shop.key': 'good', authorization: 'Bearer own' })).toEqual([
      ['shop.key'],
      undefined,
    ]);
    expect(await removed({ cookie: 'a=1; k=good; b=2' })).toEqual([undefined, 'a=1; b=2']);
    expect(await removed({ cookie: 'k=good' })).toEqual([['cookie'], undefined]);
    const raw = ['a=1', 'k=good', 'b=2'].map((line) => ({ key: 'cookie', raw_value: Buffer.from(line) }));
    const { ok_response } = await check({ method: 'GET', header_map: { headers: raw } });
    expect(told(ok_response?.headers)['Cookie']).toBe('a=1; b=2');
    const { denied_response } = await check(http({ cookie: 'k=good; k=good' }));
    expect(JSON.parse(denied_response?.body ?? '').code).toBe('KEY_AMBIGUOUS');
  });

  test('lets nobody pass where keys are optional', async () => {
    const optional = { optional: 'true', permissions: 'a' };
    const { ok_response, dynamic_metadata } = await check(
      http({ 'x-key-id': 'boss', x_key_id: 'boss' }),
      optional,
    );
    expect(told(ok_response?.headers)).toMatchObject({ 'X-Key-Id': '', 'X-Key-Name': '' });
    expect(ok_response?.headers_to_remove).toEqual(['x_key_id']);
    expect(dynamic_metadata?.fields).toEqual({ code: { stringValue: 'ANONYMOUS' } });
    const codeOf = async (request: object, extensions: Record<string, string>) =>
      (await check(request, extensions)).denied_response?.status.code;
    expect(await codeOf(bearer('nobody'), optional)).toBe(401);
    expect(await codeOf(bearer('good'), optional)).toBe(403);
    for (const wrong of ['false', '', 'True', '1'])
      expect(await codeOf(http({}), { optional: wrong })).toBe(400);
    const limit = { limit: 1, durationMs: 86_400_000 };
    await listener.close(0);
    await start({ anonymousLimit: new AnonymousLimit(limit, systemClock) });
    expect(await codeOf(http({}), optional)).toBeUndefined();
    expect((await check(http({}), optional)).denied_response?.status.code).toBe(429);
  });

  test('reads raw headers, where doubles are two', async () => {
    const raw = (...values: string[]) => ({
      method: 'GET',
      header_map: { headers: values.map((value) => ({ key: 'x-api-key', raw_value: Buffer.from(value) })) },
    });
    expect((await check(raw('good'))).ok_response?.headers_to_remove).toEqual(['x-api-key']);
    expect(JSON.parse((await check(raw('good', 'good'))).denied_response?.body ?? '').code).toBe(
      'KEY_AMBIGUOUS',
    );
  });

  test.each([
    ['no key', http({}), 401, 16, 'KEY_MISSING', 'Bearer realm="api"'],
    [
      'two keys',
      http({ authorization: 'Bearer good', 'x-api-key': 'rich' }),
      401,
      16,
      'KEY_AMBIGUOUS',
      'invalid_request',
    ],
    [
      'two of one header, as Envoy joins them',
      http({ 'x-api-key': 'good,good' }),
      401,
      16,
      'NOT_FOUND',
      'invalid_token',
    ],
    ['a disabled key', bearer('disabled'), 401, 16, 'DISABLED', 'invalid_token'],
    ['an expired key', bearer('remote-expired'), 401, 16, 'EXPIRED', 'invalid_token'],
    ['a key of another API', bearer('other'), 403, 7, 'FORBIDDEN', undefined],
    ['a key that was used too often', bearer('limited'), 429, 8, 'RATE_LIMITED', undefined, '2'],
    ['a key whose credits are used up', bearer('remote-empty'), 429, 8, 'USAGE_EXCEEDED', undefined, '60'],
    ['an outage', bearer('down'), 503, 14, 'SERVICE_UNAVAILABLE', undefined, '1'],
  ])(
    'denies %s in the words that a client may see',
    async (_, request, httpStatus, code, problem, challenge, again: string | undefined = undefined) => {
      const reply = await check(request);
      expect([reply.status?.code, reply.denied_response?.status.code]).toEqual([code, httpStatus]);
      expect(reply.ok_response).toBeUndefined();
      const body = JSON.parse(reply.denied_response?.body ?? '');
      expect(body).toMatchObject({ status: httpStatus, code: problem, requestId: 'mine-1' });
      const headers = told(reply.denied_response?.headers);
      expect(headers).toMatchObject({
        'Content-Type': 'application/problem+json',
        'Cache-Control': 'no-store',
      });
      if (challenge) expect(headers['WWW-Authenticate']).toContain(challenge);
      else expect(headers).not.toHaveProperty('WWW-Authenticate');
      expect(headers['Retry-After']).toBe(again);
      expect(headers['X-Key-Code']).toBe(httpStatus === 429 ? problem : undefined);
    },
  );

  test('tells the limit and when to come again', async () => {
    const { denied_response } = await check(bearer('limited'));
    expect(told(denied_response?.headers)).toMatchObject({
      RateLimit: '"default";r=0;t=2',
      'RateLimit-Policy': '"default";q=100;w=10',
    });
    expect(told((await check(bearer('empty'))).denied_response?.headers)).not.toHaveProperty(
      'RateLimit-Policy',
    );
  });

  test('holds a key to the API of Envoy', async () => {
    expect((await check(bearer('good'), { api_id: 'payments' })).status?.code ?? 0).toBe(0);
    for (const name of ['good', 'disabled', 'expired', 'remote-disabled']) {
      const { status, denied_response } = await check(bearer(name), { api_id: 'billing' });
      expect([status?.code, denied_response?.status.code], name).toEqual([7, 403]);
      expect(JSON.parse(denied_response?.body ?? '').code, name).toBe('FORBIDDEN');
      expect(JSON.stringify(denied_response), name).not.toMatch(/key_|payments/);
    }
    const wrong = await check(bearer('good'), { api_id: 'not an id' });
    expect(JSON.parse(wrong.denied_response?.body ?? '').code).toBe('BAD_REQUEST');
  });

  test('Envoy must name the API, and nothing unknown', async () => {
    const faults: { fault: string }[] = [];
    for (const [extensions, fault] of [
      [{}, 'api_id: required, with the API to which'],
      [{ optional: 'true' }, 'api_id: required'],
      [{ apiId: 'payments' }, 'apiId: unknown context extension; known are api_id, permissions, optional'],
      [{ api_id: 'payments', permission: 'a' }, 'permission: unknown context extension'],
      [{ api_id: '' }, 'api_id: must match'],
    ] as const) {
      await listener.close(0);
      const log = { error: (fields: { fault: string }) => void faults.push(fields) };
      await start({ needsApi: true, wrongQuestions: new WrongQuestions(log as never, systemClock) });
      // Twice: the log has one line.
      for (let i = 0; i < 2; i++) {
        const { denied_response, status } = await check(bearer('good'), extensions);
        expect([status?.code, denied_response?.status.code]).toEqual([GRPC_INTERNAL, 400]);
      }
      expect(answers.asked).toEqual([]);
      expect(faults.splice(0)).toMatchObject([{ fault: expect.stringContaining(fault), unsaid: 0 }]);
    }
    for (const api_id of ['payments', '*'])
      expect((await check(bearer('good'), { api_id })).status?.code ?? 0).toBe(0);
    expect(answers.askedApis).toEqual(['payments', undefined]);
  });

  test('holds a key to the permissions of Envoy', async () => {
    const codeOf = async (permissions: string, key = 'permitted') => {
      const { status, denied_response } = await check(bearer(key), { api_id: 'payments', permissions });
      if (!denied_response) return status?.code ?? 0;
      return [status?.code, denied_response.status.code, JSON.parse(denied_response.body).code];
    };
    expect(await codeOf('a AND (d OR b.c)')).toBe(0);
    for (const key of ['permitted', 'good', 'remote-permitted'])
      expect(await codeOf('a AND d', key)).toEqual([7, 403, 'INSUFFICIENT_PERMISSIONS']);
    expect(await codeOf('a', 'disabled')).toEqual([16, 401, 'DISABLED']);
    for (const wrong of ['', 'a AND', '%'])
      expect(((await codeOf(wrong)) as unknown[])[2]).toBe('BAD_REQUEST');
  });

  test('passes a nameless preflight if enabled', async () => {
    const preflight = http({ origin: 'https://a', 'access-control-request-method': 'PUT' }, '/', 'OPTIONS');
    expect((await check(preflight)).denied_response?.status.code).toBe(401);
    await listener.close(0);
    await start({ allowPreflight: true });
    expect(told((await check(preflight)).ok_response?.headers)).toHaveProperty('X-Key-Id', '');
  });

  test('allows nothing without attributes or by a bug', async () => {
    const empty = await unary<Reply>(connected(), envoy, SERVICE, 'Check', {});
    expect(empty.denied_response?.status.code).toBe(401);
    for (const key of ['bug', 'remote-bug']) {
      const traced = http({ authorization: `Bearer ${key}`, traceparent: TRACEPARENT });
      expect((await check(traced)).denied_response?.status.code).toBe(500);
    }
    const named = expect.objectContaining({ requestId: 'mine-1', traceId: TRACE });
    expect(bugs.splice(0)).toEqual([named, named]);
  });

  test('of a message over 1 MiB is refused', async () => {
    const large = http({ authorization: 'Bearer good', 'x-large': 'x'.repeat(1_100_000) });
    await expect(check(large)).rejects.toMatchObject({ code: status.RESOURCE_EXHAUSTED });
  });
});

describe('grpc.health.v1', () => {
  const asked = (service?: string) =>
    unary<{ status: number }>(connected(), health, HEALTH, 'Check', service === undefined ? {} : { service });

  test('says whether the verifier is ready', async () => {
    for (const service of [undefined, '', SERVICE]) expect(await asked(service)).toEqual({ status: 2 });
    listener.serving = true;
    for (const service of [undefined, SERVICE]) expect(await asked(service)).toEqual({ status: 1 });
    await expect(asked('no.such.Service')).rejects.toMatchObject({
      ...{ code: status.NOT_FOUND, details: 'no such service' },
    });
  });

  test('tells watchers of changes and of the stop', async () => {
    const definition = (health[HEALTH] as Record<string, MethodDefinition<object, object>>)['Watch'];
    if (definition === undefined) throw new Error('no method Watch');
    const watch = (service: string) => {
      const seen: unknown[] = [];
      const { path, requestSerialize, responseDeserialize } = definition;
      connected()
        .makeServerStreamRequest(path, requestSerialize, responseDeserialize, { service })
        .on('data', ({ status: value }: { status: number }) => seen.push(value))
        .on('end', () => seen.push('end'))
        .on('error', () => undefined);
      return seen;
    };
    const [seen, unknown] = [watch(SERVICE), watch('no.such.Service')];
    await eventually(() => seen.length === 1 && unknown.length === 1);
    listener.serving = true;
    await eventually(() => seen.length === 2);
    await listener.close(1000);
    await eventually(() => seen.at(-1) === 'end');
    expect(seen).toEqual([2, 1, 2, 'end']);
    expect(unknown[0]).toBe(3);
  });
});

test('answers only clients that its CA signed', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'keyfence-grpc-'));
  const [own, client, stranger] = ['own', 'client', 'stranger'].map((name) =>
    makeCertificate(directory, name),
  );
  const files = {
    TLS_CERT_FILE: own?.certFile ?? '',
    TLS_KEY_FILE: own?.keyFile ?? '',
    TLS_CLIENT_CA_FILE: client?.certFile ?? '',
  };
  const certificate = followCertificate(files, systemClock, log);
  try {
    await listener.close(0);
    await start({}, certificate);
    const as = (caller: typeof own) => {
      const pair = caller && ([readFileSync(caller.keyFile), Buffer.from(caller.cert)] as const);
      const trusted = Buffer.from(own?.cert ?? '');
      const ssl = pair ? credentials.createSsl(trusted, ...pair) : credentials.createSsl(trusted);
      return check(bearer('good'), {}, connected(listener.address.replace('127.0.0.1', 'localhost'), ssl));
    };
    expect((await as(client)).status?.code ?? 0).toBe(0);
    for (const refused of [undefined, stranger])
      await expect(as(refused)).rejects.toMatchObject({ code: 14 });
  } finally {
    certificate?.close();
    rmSync(directory, { recursive: true });
  }
});

test('answers over TLS with the newest certificate', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'keyfence-grpc-'));
  const [first, second] = [makeCertificate(directory, 'first'), makeCertificate(directory, 'second')];
  const files = { TLS_CERT_FILE: first.certFile, TLS_KEY_FILE: first.keyFile, TLS_CLIENT_CA_FILE: '' };
  const certificate = followCertificate(files, systemClock, log);
  try {
    await listener.close(0);
    await start({}, certificate);
    const over = (cert: string) =>
      connected(listener.address.replace('127.0.0.1', 'localhost'), credentials.createSsl(Buffer.from(cert)));
    expect((await check(bearer('good'), {}, over(first.cert))).status?.code ?? 0).toBe(0);
    renameSync(second.keyFile, first.keyFile);
    renameSync(second.certFile, first.certFile);
    let current = '';
    certificate?.follow(({ cert }) => {
      current = cert;
    });
    await eventually(() => current === second.cert);
    expect((await check(bearer('good'), {}, over(second.cert))).status?.code ?? 0).toBe(0);
    await expect(check(bearer('good'), {}, over(first.cert))).rejects.toMatchObject({
      code: status.UNAVAILABLE,
    });
  } finally {
    certificate?.close();
    rmSync(directory, { recursive: true });
  }
});

test('denies a disabled key once updateKey returns', async () => {
  expect(verifierConfig({}).EXT_AUTHZ_GRPC_PORT).toBeUndefined();
  const fleet = await Fleet.start({ verifiers: 0 });
  try {
    const { grpcAddress = '' } = await fleet.addVerifier({ EXT_AUTHZ_GRPC_PORT: '0' });
    const client = connected(grpcAddress);
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const code = async (extensions = { api_id: 'shop' }) =>
      (await check(bearer(key), extensions, client)).status?.code ?? 0;
    await fleet.until(async () => (await code()) === 0);
    const metered = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 9 });
    let added: readonly Option[] | undefined;
    await fleet.until(async () => {
      const { ok_response } = await check(bearer(metered.key), { api_id: 'shop' }, client);
      added = (ok_response as { response_headers_to_add?: readonly Option[] } | undefined)
        ?.response_headers_to_add;
      return ok_response !== undefined;
    });
    expect(told(added)).toEqual({ RateLimit: '"credits";r=8' });
    expect(await code({} as never)).toBe(GRPC_INTERNAL);
    expect(fleet.logged.filter((line) => line.includes('a gateway asks wrongly'))).toHaveLength(1);
    const ready = await unary<{ status: number }>(client, health, HEALTH, 'Check', {});
    expect(ready).toEqual({ status: 1 });
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(await code()).toBe(16);
  } finally {
    await fleet.stop();
  }
});

test('a verifier without it does not load it', () => {
  const program = `
    import { createRequire } from 'node:module';
    await import('./verifier/app.ts');
    const loaded = () => Object.keys(createRequire(import.meta.url).cache).filter((p) => p.includes('/@grpc/')).length;
    const before = loaded();
    const { listenGrpc } = await import('./verifier/doors/grpc/server.ts');
    const answers = { decide: () => ({ code: 'NOT_FOUND' }) };
    const listener = await listenGrpc({ answers, authz: { sources: [] }, host: '127.0.0.1', port: 0, limits: {} });
    process.stdout.write(JSON.stringify([before, loaded() > 0]));
    await listener.close(0);`;
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', program], { cwd: ROOT });
  expect(JSON.parse(output.toString())).toEqual([0, true]);
});

describe('connections', () => {
  const opened = async () => {
    const [host = '', port] = listener.address.split(':');
    const socket = connect(Number(port), host).on('error', () => undefined);
    const closed = new Promise<string>((resolve) => socket.once('close', () => resolve('closed')));
    await new Promise((resolve) => socket.resume().once('connect', resolve));
    return { socket, closed };
  };

  test('over CONNECTIONS_MAX are closed, no others', async () => {
    await listener.close(0);
    await start({}, undefined, { CONNECTIONS_MAX: 2 });
    const client = connected();
    expect((await check(bearer('good'), {}, client)).status?.code ?? 0).toBe(0);
    const second = await opened();
    const third = await opened();
    expect(await third.closed).toBe('closed');
    expect(second.socket.destroyed).toBe(false);
    expect((await check(bearer('good'), {}, client)).status?.code ?? 0).toBe(0);
    second.socket.destroy();
    await second.closed;
    // The place is free again.
    await eventually(() => second.socket.destroyed);
    expect((await check(bearer('good'), {}, client)).status?.code ?? 0).toBe(0);
  });

  test('that say nothing are closed in time', async () => {
    await listener.close(0);
    await start({}, undefined, { HEADERS_TIMEOUT_MS: 100 });
    const client = connected();
    expect((await check(bearer('good'), {}, client)).status?.code ?? 0).toBe(0);
    expect(await (await opened()).closed).toBe('closed');
    expect((await check(bearer('good'), {}, client)).status?.code ?? 0).toBe(0);
  });

  const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
  test.each([
    ['a byte', 'P'],
    ['the preface', PREFACE],
    ['the preface and a part of the head of a frame', `${PREFACE}\0\0\0\x04`],
  ])('that say only %s are closed in time', async (_, said) => {
    await listener.close(0);
    await start({}, undefined, { HEADERS_TIMEOUT_MS: 100 });
    const client = connected();
    expect((await check(bearer('good'), {}, client)).status?.code ?? 0).toBe(0);
    const one = await opened();
    one.socket.write(said, 'latin1');
    expect(await one.closed).toBe('closed');
    expect((await check(bearer('good'), {}, client)).status?.code ?? 0).toBe(0);
  });

  test('without a request close after their idle time', async () => {
    await listener.close(0);
    await start({}, undefined, { KEEP_ALIVE_TIMEOUT_MS: 100 });
    const one = await opened();
    one.socket.write(`${PREFACE}\0\0\0\x04\0\0\0\0\0`, 'latin1');
    expect(await one.closed).toBe('closed');
    expect((await check(bearer('good'))).status?.code ?? 0).toBe(0);
  });

  test('without a message are told so and closed', async () => {
    await listener.close(0);
    await start({}, undefined, { REQUEST_TIMEOUT_MS: 100, KEEP_ALIVE_TIMEOUT_MS: 100 });
    const session = connectHttp2(`http://${listener.address}`).on('error', () => undefined);
    const call = {
      ':method': 'POST',
      ':path': `/envoy.service.auth.v3.Authorization/Check`,
      'content-type': 'application/grpc',
      te: 'trailers',
    };
    const stream = session.request(call).on('error', () => undefined);
    // A part of the length of the message.
    stream.write(Buffer.alloc(3));
    const closed = once(session, 'close');
    const [headers] = await once(stream, 'response');
    expect(headers).toMatchObject({ 'grpc-status': `${status.DEADLINE_EXCEEDED}` });
    stream.resume();
    await closed;
    // One whose answer takes longer than that is answered all the same.
    const slow = check(bearer('slow-good'));
    await eventually(() => answers.asked.length === 1);
    await elapsed(150);
    answers.release();
    expect((await slow).status?.code ?? 0).toBe(0);
  });

  test('of a stalled handshake are closed in time', async () => {
    await listener.close(0);
    const directory = mkdtempSync(join(tmpdir(), 'keyfence-grpc-'));
    const { certFile, keyFile } = makeCertificate(directory, 'own');
    const files = { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile, TLS_CLIENT_CA_FILE: '' };
    const certificate = followCertificate(files, systemClock, log);
    try {
      await start({}, certificate, { HEADERS_TIMEOUT_MS: 200 });
      const [host = '', port] = listener.address.split(':');
      const half = await opened();
      // The head of a ClientHello of 512 bytes, longer than what a client without TLS begins with.
      half.socket.write(Buffer.concat([Buffer.from('160301020001', 'hex'), Buffer.alloc(100)]));
      expect(await half.closed).toBe('closed');
      const whole = connectTls({
        host,
        port: Number(port),
        rejectUnauthorized: false,
        ALPNProtocols: ['h2'],
      });
      whole.on('error', () => undefined).resume();
      await once(whole, 'close');
    } finally {
      certificate?.close();
      rmSync(directory, { recursive: true });
    }
  });

  test('are cut when the listener closes', async () => {
    const silent = await opened();
    await listener.close(0);
    expect(await silent.closed).toBe('closed');
    await start();
  });
});

test('raw headers of Envoy count before its map', async () => {
  const request = {
    ...http({ 'x-api-key': 'good' }),
    header_map: { headers: [{ key: 'x-api-key', raw_value: Buffer.from('nobody') }] },
  };
  const { denied_response: denied } = await check(request);
  expect(JSON.parse(denied?.body ?? '{}')).toMatchObject({ code: 'NOT_FOUND' });
});
