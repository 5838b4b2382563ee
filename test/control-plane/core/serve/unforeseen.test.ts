import { METHODS } from 'node:http';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Answer, Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

let fleet: Fleet;
let base: string;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 1, env: { FAILURES_PER_MINUTE: '0' } });
  base = fleet.controlPlanes[0]?.address ?? '';
});
afterAll(async () => {
  expect(fleet.logged.filter((line) => line.includes('unhandled error'))).toEqual([]);
  await fleet.stop();
});

/** Sends a request as it is, without a client that would mend it, and reads its one answer. */
function raw(address: string, requestLine: string, ...headers: readonly string[]): Promise<Answer> {
  const { hostname, port } = new URL(address);
  const { promise, resolve } = Promise.withResolvers<Answer>();
  const socket = connect(Number(port), hostname);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  socket.on('close', () => {
    const [head = '', body = ''] = Buffer.concat(chunks).toString().split('\r\n\r\n');
    const [statusLine = '', ...lines] = head.split('\r\n');
    const parts = lines.map((line): [string, string] => {
      const [name = '', ...value] = line.split(': ');
      return [name.toLowerCase(), value.join(': ')];
    });
    const isJson = body.startsWith('{');
    const status = Number(statusLine.split(' ')[1]);
    resolve({ status, headers: Object.fromEntries(parts), body: isJson ? JSON.parse(body) : body });
  });
  socket.write(
    `${[`${requestLine} HTTP/1.1`, 'Host: x', 'Connection: close', ...headers].join('\r\n')}\r\n\r\n`,
  );
  return promise;
}
const told = ({ status, body }: Answer) => [status, body.error?.code];

describe('a path out of a folder, or of no file in it', () => {
  test.each([
    '/docs/static//etc/passwd',
    '/docs/static/%2e%2e',
    '/docs/static/%2e%2e%2f%2e%2e%2fpackage.json',
    '/docs/static/%00',
    '/docs/static/\\',
    `/docs/static/${'a'.repeat(300)}`,
    '/docs/static/.gitignore',
    '/dashboard//etc/passwd',
    '/dashboard/%2e%2e/main.tsx',
  ])('%s is 404', async (path) => {
    expect(told(await raw(base, `GET ${path}`))).toEqual([404, 'NOT_FOUND']);
  });

  test('a range that a file does not have is ignored', async () => {
    for (const path of ['/dashboard/app.css', '/dashboard/icon.svg'])
      expect((await raw(base, `GET ${path}`, 'Range: bytes=99999999-')).status, path).toBe(200);
  });
});

describe('a method that a path does not take', () => {
  test('is 405, but 404 on a path that does not exist', async () => {
    const verifier = fleet.verifiers[0]?.address ?? '';
    for (const [address, path, allowed] of [
      [base, '/v1/apis.listApis', 'GET'],
      [base, '/v1/keys.createKey', 'POST'],
      [verifier, '/v1/keys.verifyKey', 'POST'],
    ] as const) {
      for (const method of METHODS.filter((name) => name !== allowed && name !== 'CONNECT')) {
        const answer = await raw(address, `${method} ${path}`);
        expect([answer.status, answer.headers['allow']], `${method} ${path}`).toEqual([405, allowed]);
        expect((await raw(address, `${method} /nowhere`)).status, `${method} /nowhere`).toBe(404);
      }
      expect(told(await raw(address, 'CONNECT nowhere:443'))).toEqual([404, 'NOT_FOUND']);
    }
  });

  test('does not matter on an unknown path', async () => {
    for (const headers of [
      ['Content-Type: text/plain'],
      ['Content-Type: ;'],
      ['Content-Type: application/json'],
    ]) {
      const answer = await raw(base, 'POST /v1/nothing', ...headers, 'Content-Length: 3', '', 'no!');
      expect(told(answer)).toEqual([404, 'NOT_FOUND']);
    }
  });
});

describe('a meta', () => {
  const nested = (levels: number) => `${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`;
  const lists = (levels: number) => `{"a":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}}`;
  const send = (operation: string, body: string): Promise<Answer> =>
    fleet.send(`${base}/v1/${operation}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ROOT_KEY}`, 'content-type': 'application/json' },
      body,
    });
  const rule = 'meta: must be at most 32 levels deep';

  test('may be 32 levels deep, and comes back so', async () => {
    const { body } = await send('keys.createKey', `{"apiId":"deep","meta":${nested(32)}}`);
    expect(JSON.stringify((await fleet.ok('keys.getKey', { keyId: body.keyId })).meta)).toBe(nested(32));
    await fleet.verdict(body.key);
    expect((await fleet.verify(body.key)).body.meta).toEqual(JSON.parse(nested(32)));
  });

  test('is refused if deeper', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'deep' });
    for (const meta of [nested(33), lists(33), nested(1000), lists(5000), nested(8000), lists(30_000)]) {
      for (const [operation, rest] of [
        ['keys.createKey', '"apiId":"deep"'],
        ['keys.updateKey', `"keyId":"${keyId}"`],
      ] as const) {
        const answer = await send(operation, `{${rest},"meta":${meta}}`);
        expect([...told(answer), answer.body.error.message]).toEqual([400, 'BAD_REQUEST', rule]);
      }
      const key = `{"sha256":"${'ab'.repeat(32)}","meta":${meta}}`;
      const imported = await send('keys.importKeys', `{"apiId":"deep","keys":[${key}]}`);
      expect(imported.body.results).toEqual([{ result: 'refused', code: 'BAD_REQUEST', message: rule }]);
    }
  });

  test('alone bounds depth: other fields are flat', async () => {
    for (const value of [lists(30_000), nested(8000)]) {
      const { status, body } = await send('keys.createKey', `{"apiId":"deep","name":${value}}`);
      expect([status, body.error.message]).toEqual([400, 'name: must be string']);
    }
  });
});
