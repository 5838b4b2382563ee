import { once } from 'node:events';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Client } from '../../../../control-plane/clients/cli/client.ts';
import { CliError, EXITS } from '../../../../control-plane/clients/cli/exit.ts';
import { settings } from '../../../../control-plane/clients/cli/settings.ts';
import { ERRORS } from '../../../../shared/rules/errors.ts';
import { makeCertificate } from '../../../harness/certificates.ts';
import { COMPILED } from '../../../harness/processes.ts';
import { start } from './keyfence.ts';

/** The command line's calls, against a server that answers as it is told. */
let answer: (request: IncomingMessage, response: ServerResponse) => void;
const asked: { method: string; url: string; headers: IncomingMessage['headers']; body: string }[] = [];
const server = createServer(async (request, response) => {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const { method = '', url = '', headers } = request;
  asked.push({ method, url, headers, body: Buffer.concat(chunks).toString() });
  answer(request, response);
});
let base: string;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.close();
  server.closeAllConnections();
});

const json = (status: number, body: unknown, headers: Record<string, string> = {}) => {
  answer = (request, response) => {
    // After a 404 it is asked whether this is a control plane at all.
    if (request.url === '/v1/apis.listApis?limit=1') return void response.writeHead(200).end('{"apis":[]}');
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
  };
};
const errorOf = async (call: Promise<unknown>): Promise<CliError> => {
  const error = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(error instanceof CliError)) throw new Error(`no CliError: ${String(error)}`);
  return error;
};
const call = (operation = 'keys.getKey', input: object = {}, path = '/') =>
  new Client(new URL(path, base), 'control plane', 'the-root-key').call(operation, input);

describe('a call', () => {
  test('that reads is a GET without undefined values', async () => {
    json(200, { it: 'is' });
    expect(await call('keys.getKey', { keyId: 'a b', limit: 7, cursor: undefined })).toEqual({ it: 'is' });
    expect(asked.at(-1)).toMatchObject({ method: 'GET', url: '/v1/keys.getKey?keyId=a+b&limit=7', body: '' });
    expect(asked.at(-1)?.headers).toMatchObject({ authorization: 'Bearer the-root-key' });
    expect(asked.at(-1)?.headers).not.toHaveProperty('content-type');
    await call('apis.listKeys');
    expect(asked.at(-1)?.method).toBe('GET');
  });

  test('that changes something is a POST of JSON', async () => {
    json(200, {});
    await call('keys.updateKey', { keyId: 'k', enabled: false }, '/behind/');
    expect(asked.at(-1)).toMatchObject({
      method: 'POST',
      url: '/behind/v1/keys.updateKey',
      body: '{"keyId":"k","enabled":false}',
    });
    expect(asked.at(-1)?.headers['content-type']).toBe('application/json');
  });

  test('sends no root key where there is none', async () => {
    json(200, {}, { date: 'Thu, 01 Jan 2026 00:00:00 GMT' });
    const client = new Client(new URL(base), 'verifier');
    await client.call('keys.verifyKey', {});
    expect(asked.at(-1)?.headers).not.toHaveProperty('authorization');
    expect(client.dateMs).toBe(1_767_225_600_000);
  });
});

describe('the address of a process', () => {
  const parse = (text: string) => settings.KEYFENCE_URL.parse(text) as URL;

  test('may end in the /v1 that its paths begin with', async () => {
    for (const [text, place] of [
      ['http://127.0.0.1:3000/v1', 'http://127.0.0.1:3000'],
      ['http://127.0.0.1:3000/v1/', 'http://127.0.0.1:3000'],
      ['http://127.0.0.1:3000', 'http://127.0.0.1:3000'],
      ['https://admin.example/keys/v1', 'https://admin.example/keys'],
      ['https://admin.example/keys/', 'https://admin.example/keys'],
      ['https://admin.example/v12', 'https://admin.example/v12'],
    ] as const)
      expect(new Client(parse(text), 'control plane').place, text).toBe(place);
    json(200, {});
    await new Client(parse(`${base}/v1`), 'control plane').call('keys.getKey');
    expect(asked.at(-1)?.url).toBe('/v1/keys.getKey');
  });

  test('is http or https without credentials or query', () => {
    for (const text of ['nowhere', 'ftp://a', 'http://u@a', 'http://:p@a', 'http://a/?b=c'])
      expect(() => parse(text), text).toThrow('is not allowed');
  });
});

describe('an error', () => {
  test.each([
    ['BAD_REQUEST', 64],
    ['UNAUTHORIZED', 77],
    ['INSUFFICIENT_PERMISSIONS', 77],
    ['NOT_FOUND', 1],
    ['METHOD_NOT_ALLOWED', 70],
    ['REQUEST_TIMEOUT', 69],
    ['CONFLICT', 1],
    ['VERIFIERS_TOO_OLD', 1],
    ['PAYLOAD_TOO_LARGE', 64],
    ['URI_TOO_LONG', 64],
    ['UNSUPPORTED_MEDIA_TYPE', 70],
    ['EXPECTATION_FAILED', 70],
    ['RATE_LIMITED', 69],
    ['HEADERS_TOO_LARGE', 64],
    ['INTERNAL_SERVER_ERROR', 70],
    ['BAD_GATEWAY', 69],
    ['GATEWAY_TIMEOUT', 69],
    ['SERVICE_UNAVAILABLE', 69],
  ] as const)('%s ends the command with status %i', async (code, status) => {
    json(ERRORS[code][0], { error: { code, message: 'the reason', requestId: 'r1' } });
    const error = await errorOf(call());
    expect(EXITS[error.exit][0]).toBe(status);
    expect(error).toMatchObject({ code, message: 'the reason', requestId: 'r1', retryAfterMs: undefined });
  });

  test('is known for every code', () => {
    const known = ['OK', 'NO', 'DIFFERS', 'USAGE', 'DATA', 'UNAVAILABLE', 'BUG', 'PENDING', 'NOT_PERMITTED'];
    expect(Object.keys(EXITS)).toEqual([...known, 'CONFIG', 'INTERRUPTED']);
    expect(Object.values(EXITS).map(([status]) => status)).toEqual([
      0, 1, 2, 64, 65, 69, 70, 75, 77, 78, 130,
    ]);
    expect(Object.keys(ERRORS)).toHaveLength(19);
  });

  test('says when to try again', async () => {
    const body = { error: { code: 'RATE_LIMITED', message: 'm', requestId: 'r' } };
    for (const [after, ms] of [
      ['3', 3000],
      ['0', 0],
      ['-1', undefined],
      ['soon', undefined],
    ] as const) {
      json(429, body, { 'retry-after': after });
      expect((await errorOf(call())).retryAfterMs).toBe(ms);
    }
  });

  test('tells a wrong address from an outage', async () => {
    for (const [status, body, exit] of [
      [200, undefined, 'CONFIG'],
      [404, {}, 'CONFIG'],
      [404, { error: { code: 'NO_SUCH_CODE' } }, 'CONFIG'],
      [404, { error: 'not found' }, 'CONFIG'],
      [499, {}, 'CONFIG'],
      [500, {}, 'UNAVAILABLE'],
      [502, undefined, 'UNAVAILABLE'],
    ] as const) {
      json(status, body);
      if (body === undefined) {
        answer = (_request, response) => void response.writeHead(status).end('<html>');
      }
      const error = await errorOf(call());
      expect(error.exit, `${status} ${JSON.stringify(body)}`).toBe(exit);
      expect(error.message).toBe(
        `${base} answered ${status}, but not as a control plane does; check the address`,
      );
    }
  });

  test('names the setting whose path leads nowhere', async () => {
    answer = (_request, response) => {
      const error = { code: 'NOT_FOUND', message: 'no such path', requestId: 'r' };
      response.writeHead(404, { 'content-type': 'application/json' }).end(JSON.stringify({ error }));
    };
    for (const [who, setting] of [
      ['control plane', 'KEYFENCE_URL'],
      ['verifier', 'KEYFENCE_VERIFIER_URL'],
    ] as const) {
      const client = new Client(new URL('/dashboard/', base), who);
      const error = await errorOf(client.call(who === 'verifier' ? 'keys.verifyKey' : 'keys.getKey'));
      expect(error).toMatchObject({
        exit: 'CONFIG',
        message: `there is no ${who} at ${base}/dashboard: unless a proxy adds the path /dashboard, set ${setting}=${base}`,
      });
    }
  });

  test('says whether the outcome is unknown', async () => {
    answer = (request) => void request.socket.destroy();
    const read = await errorOf(call('keys.getKey'));
    expect(read).toMatchObject({
      exit: 'UNAVAILABLE',
      message: expect.stringMatching(/is out of reach \(.+\)$/),
    });
    const change = await errorOf(call('keys.updateKey'));
    expect(change.message).toMatch(
      /; whether the call took effect is unknown, so check before trying again$/,
    );
    // What could not be sent was not done.
    const nobody = createServer().listen(0, '127.0.0.1');
    await once(nobody, 'listening');
    const { port } = nobody.address() as AddressInfo;
    nobody.close();
    await once(nobody, 'close');
    const unsent = await errorOf(
      new Client(new URL(`http://127.0.0.1:${port}`), 'verifier').call('keys.updateKey'),
    );
    expect(unsent.message).toBe(`the verifier at http://127.0.0.1:${port} is out of reach (ECONNREFUSED)`);
  });

  test('says what Node needs to get there', async () => {
    const { cert, keyFile } = makeCertificate(mkdtempSync(join(tmpdir(), 'keyfence-tls-')), 'unknown');
    const secure = createSecureServer({ key: readFileSync(keyFile), cert }).listen(0, '127.0.0.1');
    await once(secure, 'listening');
    const { port } = secure.address() as AddressInfo;
    const untrusted = new Client(new URL(`https://127.0.0.1:${port}`), 'control plane', 'root');
    expect((await errorOf(untrusted.call('keys.getKey'))).message).toContain(
      'set NODE_EXTRA_CA_CERTS to a file with the certificate of its authority',
    );
    secure.close();
    const behindProxy = new Client(new URL('https://keyfence.invalid'), 'control plane', 'root');
    expect((await errorOf(behindProxy.call('keys.getKey'))).message).toMatch(
      /is out of reach \(E\w+\): if a proxy leads there, set NODE_USE_ENV_PROXY=1 beside HTTPS_PROXY$/,
    );
  });

  test('sends no root key after a redirect', async () => {
    const before = asked.length;
    answer = (_request, response) => void response.writeHead(302, { location: '/elsewhere' }).end();
    expect((await errorOf(call())).exit).toBe('UNAVAILABLE');
    expect(asked).toHaveLength(before + 1);
  });
});

test('no hostile answer drives the terminal', async () => {
  const evil = '\u001b]0;owned\u0007\u009b2J\u001b[8m\nkeyfence: all is well\u202e';
  const run = async (...args: string[]) =>
    start(args, {
      PATH: process.env['PATH'] ?? '',
      ...COMPILED,
      KEYFENCE_URL: base,
      KEYFENCE_ROOT_KEY: 'root',
    }).ended;
  const shown: string[] = [];
  const note = async (...args: string[]) => {
    const { stdout, stderr } = await run(...args);
    shown.push(stdout + stderr);
  };
  const propagation = { sequence: evil, verifiers: evil, waitedMs: evil, laggards: [evil], durable: false };
  json(200, { propagation: { ...propagation, state: 'pending' } });
  await note('keys', 'disable', 'key_x');
  json(200, { propagation: { ...propagation, state: 'complete', by: 'acks' } });
  await note('keys', 'disable', 'key_x');
  json(200, { keys: [{ keyId: evil, start: evil, name: evil }], total: evil, cursor: evil });
  await note('keys', 'list', 'shop', '--limit', '1');
  json(400, { error: { code: 'BAD_REQUEST', message: evil, requestId: evil } }, {});
  await note('keys', 'get', 'key_x');
  json(200, { results: [{ result: 'refused', code: evil, message: evil }] });
  const file = join(mkdtempSync(join(tmpdir(), 'keyfence-hostile-')), 'keys.jsonl');
  writeFileSync(file, '{"key":"a"}\n');
  await note('keys', 'import', 'shop', file);
  expect(shown).toHaveLength(5);
  for (const text of shown) {
    expect(text).toContain('owned');
    for (const character of ['\u001b', '\u0007', '\u009b', '\u202e']) expect(text).not.toContain(character);
  }
  // The message of an error and of a refusal may have lines of its own.
  for (const text of shown.slice(0, 3)) expect(text).not.toMatch(/^keyfence: all is well/m);
});
