import { spawnSync } from 'node:child_process';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { generateKey } from '../../../shared/rules/key-format.ts';
import { createClient } from '../../../verifier/library/client.ts';
import {
  type ClientOptions,
  type KeyVerifier,
  VerifierError,
} from '../../../verifier/library/key-verifier.ts';
import { Fleet } from '../../harness/fleet.ts';

let fleet: Fleet;
const ends: (() => unknown)[] = [];
const KEY = generateKey(16);

function open(options: ClientOptions): KeyVerifier {
  const client = createClient({ timeoutMs: 10_000, ...options });
  ends.push(() => client.close());
  return client;
}

/** A sidecar that answers as a test says. */
async function sidecar(listener: RequestListener, keepAliveTimeout = 5000): Promise<string> {
  const server = createServer({ keepAliveTimeout }, listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  ends.push(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  const LISTEN_UNIX = join(fleet.directory, 'verifier.sock');
  await fleet.addVerifier({ LOOKUP_WAIT_MS: '5000', USAGE_PERIOD_MS: '200', LISTEN_UNIX });
});
afterAll(async () => {
  await Promise.all(ends.map((end) => end()));
  await fleet.stop();
});

const refusal = (code: string, message = /./) =>
  expect.objectContaining({ constructor: VerifierError, code, message: expect.stringMatching(message) });

test('a socket whose server is gone says to mount its folder', async () => {
  const socket = join(fleet.directory, 'gone.sock');
  // As a mount of the file keeps the inode of a sidecar that has restarted.
  const code = `require('net').createServer().listen(${JSON.stringify(socket)}, () => process.kill(process.pid, 'SIGKILL'))`;
  spawnSync(process.execPath, ['-e', code]);
  const message = /ECONNREFUSED; if the sidecar runs, mount the folder of the socket, not its file/;
  await expect(open({ unixSocket: socket }).verify(KEY)).rejects.toEqual(
    refusal('SERVICE_UNAVAILABLE', message),
  );
});

test('HTTP and socket have the same verdicts', async () => {
  const { key, keyId } = await fleet.ok('keys.createKey', {
    apiId: 'shop',
    name: 'Ada',
    meta: { plan: 'gold' },
  });
  const clients = [
    open({ url: fleet.verifiers[0]?.address ?? '' }),
    open({ unixSocket: join(fleet.directory, 'verifier.sock') }),
  ];
  for (const client of clients) {
    await client.ready();
    expect(client.decide(key)).toBeUndefined();
    const { requestId: _, ...wanted } = (await fleet.verify(key)).body;
    expect(await client.verify(key)).toEqual(wanted);
    expect(wanted).toMatchObject({ code: 'VALID', name: 'Ada' });
    expect((await client.verify(key, { apiId: 'another' })).code).toBe('FORBIDDEN');
    for (const none of ['', 'x'.repeat(513), '\ud800', generateKey(16)])
      expect(await client.verify(none)).toEqual({ valid: false, code: 'NOT_FOUND' });
    await expect(client.verify(key, { apiId: '' })).rejects.toThrow(/^apiId: must match/);
  }
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  for (const client of clients) expect((await client.verify(key)).code).toBe('DISABLED');
});

test('a verdict of another API is none', async () => {
  const verdict = { valid: true, code: 'VALID', keyId: 'key_1', apiId: 'other', enabled: true, meta: {} };
  const client = open({ url: await sidecar((_request, response) => response.end(JSON.stringify(verdict))) });
  await expect(client.verify(KEY, { apiId: 'shop' })).rejects.toEqual(
    refusal('SERVICE_UNAVAILABLE', /another API/),
  );
  expect(await client.verify(KEY, { apiId: 'other' })).toMatchObject({ code: 'VALID' });
  expect(await client.verify(KEY)).toMatchObject({ code: 'VALID', apiId: 'other' });
});

test('rejects while a sidecar is away, then answers', async () => {
  let there = true;
  const url = await sidecar((request, response) => {
    if (!there) return request.socket.destroy();
    response.end('{"valid":false,"code":"NOT_FOUND","requestId":"1"}');
  });
  const client = open({ url });
  const told: string[] = [];
  client.on('live', () => void told.push('live'));
  client.on('dropped', ({ reason }) => void told.push(reason));
  await client.ready();
  there = false;
  for (let i = 0; i < 2; i++)
    await expect(client.verify(KEY)).rejects.toEqual(refusal('SERVICE_UNAVAILABLE', /out of reach/));
  await expect(client.ready({ timeoutMs: 30 })).rejects.toEqual(refusal('SERVICE_UNAVAILABLE', /not ready/));
  there = true;
  await client.ready();
  expect(told).toEqual(['live', expect.stringMatching(/out of reach/), 'live']);
  const nowhere = open({ unixSocket: join(fleet.directory, 'none.sock') });
  await expect(nowhere.verify(KEY)).rejects.toEqual(refusal('SERVICE_UNAVAILABLE', /ENOENT/));
});

test('an idle close by the sidecar costs no verdict', async () => {
  let asked = 0;
  const url = await sidecar((request, response) => {
    if (++asked === 2) return request.socket.destroy();
    response.end('{"valid":false,"code":"NOT_FOUND","requestId":"1"}');
  });
  const client = open({ url });
  for (let i = 0; i < 2; i++) expect((await client.verify(KEY)).code).toBe('NOT_FOUND');
  expect(asked).toBe(3);
});

describe('what is no verdict is an outage', () => {
  const known = '"keyId":"key_1","apiId":"shop","enabled":true,"meta":{}';
  test.each([
    [200, ''],
    [200, 'null'],
    [200, '[]'],
    [200, '{"valid":true}'],
    [200, `{"valid":true,"code":"valid",${known}}`],
    [200, `{"valid":true,"code":"toString",${known}}`],
    [200, `{"valid":true,"code":"DISABLED",${known}}`],
    [200, `{"valid":"true","code":"VALID",${known}}`],
    [200, '{"valid":true,"code":"VALID"}'],
    [200, '{"valid":true,"code":"VALID","keyId":"key_1","apiId":"shop","enabled":true}'],
    [200, '{"valid":false,"code":"RATE_LIMITED"}'],
    [201, `{"valid":true,"code":"VALID",${known}}`],
    [400, ''],
    [400, '{"error":{"code":"URI_TOO_LONG","message":"no"}}'],
    [404, `{"valid":true,"code":"VALID",${known}}`],
    [503, `{"valid":true,"code":"VALID",${known}}`],
    [200, `{"valid":true,"code":"VALID",${known},"name":"${'x'.repeat(300_000)}"}`],
  ])('%i %.60s', async (status, body) => {
    const url = await sidecar((_request, response) => response.writeHead(status).end(body));
    await expect(open({ url }).verify(KEY)).rejects.toEqual(refusal('SERVICE_UNAVAILABLE'));
  });
});

test('bounds the wait and how many wait', async () => {
  const url = await sidecar(() => undefined);
  const slow = open({ url, timeoutMs: 20 });
  await expect(slow.verify(KEY)).rejects.toEqual(refusal('SERVICE_UNAVAILABLE', /within 20 ms/));
  const full = open({ url, requestsInFlightMax: 1 });
  const waiting = expect(full.verify(KEY)).rejects.toEqual(refusal('CLOSED'));
  await expect(full.verify(KEY)).rejects.toEqual(refusal('SERVICE_UNAVAILABLE', /requestsInFlightMax/));
  await full.close();
  await waiting;
  await expect(full.verify(KEY)).rejects.toEqual(refusal('CLOSED'));
  await expect(full.ready()).rejects.toEqual(refusal('CLOSED'));
});

test('closing ends the connections to the sidecar', async () => {
  let open = 0;
  const answer: RequestListener = (request, response) => {
    open++;
    request.socket.once('close', () => open--);
    response.end('{"valid":false,"code":"NOT_FOUND","requestId":"1"}');
  };
  const client = createClient({ url: await sidecar(answer, 600_000), timeoutMs: 10_000 });
  expect((await client.verify(KEY)).code).toBe('NOT_FOUND');
  expect(open).toBe(1);
  await client.close();
  await fleet.until(() => open === 0, 'a connection is kept');
});

test.each<[unknown, RegExp]>([
  [undefined, /options: must be an object/],
  [{}, /url, unixSocket: set exactly one of them/],
  [{ url: 'http://a', unixSocket: '/b' }, /url, unixSocket: set exactly one of them/],
  [{ url: '' }, /url: must be a string that is not empty/],
  [{ url: 'ftp://a' }, /url: is not a valid URL/],
  [{ url: 'http://a:b@c' }, /url: is not a valid URL/],
  [{ url: 'http://a', timeoutMs: 0 }, /timeoutMs: "0" is not allowed \(integer 1\.\.60000 ms\)/],
  [{ url: 'http://a', timeout: 5 }, /timeout: unknown option/],
])('options %j: %s', (options, message) => {
  expect(() => createClient(options as ClientOptions)).toThrow(message);
});

test('a recheck costs nothing and is not counted', async () => {
  const ratelimit = { limit: 2, duration: 3_600_000 };
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 3, ratelimit });
  await fleet.until(async () => (await fleet.verify(key)).body.code === 'VALID');
  for (let i = 0; i < 5; i++) {
    const { body } = await fleet.verify(key, { recheck: true });
    expect(body).toMatchObject({ code: 'VALID', keyId });
  }
  const { body } = await fleet.verify(key, { recheck: false, tags: ['last'] });
  expect(body).toMatchObject({ code: 'VALID', remaining: 1, ratelimit: { remaining: 0 } });
  expect((await fleet.verify(key)).body.code).toBe('RATE_LIMITED');
  expect((await fleet.verify(key, { recheck: true })).body.code).toBe('VALID');
  const wrong = await fleet.verifyOnce(key, { recheck: 'yes' });
  expect([wrong.status, wrong.body.error.message]).toEqual([400, 'recheck: must be true or false']);
  await fleet.until(async () => {
    const { verifications } = await fleet.ok('keys.getVerifications', { keyId });
    const { success, rateLimited } = verifications.at(-1);
    return success === 2 && rateLimited === 1;
  });
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect((await fleet.verify(key, { recheck: true })).body.code).toBe('DISABLED');
  await fleet.ok('keys.updateKey', { keyId, enabled: true });
  expect((await fleet.verify(key)).body.code).toBe('RATE_LIMITED');
  const codes = async () =>
    (await fleet.ok('keys.listRefusals', { keyId })).refusals.map(({ code }: { code: string }) => code);
  await fleet.until(async () => (await codes()).length === 2);
  expect(await codes()).toEqual(['RATE_LIMITED', 'RATE_LIMITED']);
});
