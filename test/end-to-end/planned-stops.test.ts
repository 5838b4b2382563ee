import { rmSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import express from 'express';
import { request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type RedisServer, startRedis } from '../../deploy/dev/redis-server.ts';
import { createClient } from '../../verifier/library/client.ts';
import { createVerifier } from '../../verifier/library/create-verifier.ts';
import { keyfence } from '../../verifier/library/guards/express.ts';
import { Process } from '../harness/processes.ts';
import { scratch } from '../harness/scratch.ts';
import { eventually } from '../harness/waiting.ts';

/** A planned stop charges what was used: it waits for what is open, and then charges what was said last. */
const RESERVED = 50;
const CREDITS = 1000;
const ROOT_KEY = 'planned-stops-root-key-0123456789abcdef01234';
const PATIENT = { LOOKUP_WAIT_MS: '10000' };

let directory: string;
let redis: RedisServer;
let controlPlane: Process;
/** It is asked what is left. */
let other: Process;
const stops: (() => unknown)[] = [];

const streams = new Map<string, ServerResponse>();
const api = createServer((incoming, response) => {
  const said = /said=(\d+)/.exec(incoming.url ?? '')?.[1];
  response.writeHead(200, { Trailer: 'X-Keyfence-Cost', ...(said && { 'X-Keyfence-Cost': said }) });
  response.write('first');
  streams.set(incoming.url ?? '', response);
});

beforeAll(async () => {
  directory = scratch('planned-stops');
  redis = await startRedis(join(directory, 'redis'));
  await new Promise<void>((resolve) => api.listen(0, '127.0.0.1', resolve));
  controlPlane = await start('control-plane/main.ts', { ROOT_KEY });
  await eventually(
    async () => (await call(controlPlane, 'apis.createApi', { apiId: 'shop', name: 'shop' })).ok,
  );
  other = await start('verifier/main.ts');
});
afterAll(async () => {
  for (const stop of stops.reverse()) await stop();
  api.close();
  api.closeAllConnections();
  await redis.stop();
  rmSync(directory, { recursive: true, force: true });
});

async function start(file: 'control-plane/main.ts' | 'verifier/main.ts', env: Record<string, string> = {}) {
  const own = file === 'verifier/main.ts' ? PATIENT : {};
  const process = new Process(file, { REDIS_URL: redis.url, DRAIN_MS: '0', ...own, ...env });
  stops.push(() => process.stop('SIGKILL'));
  await process.start();
  return process;
}

async function call({ address }: { address: string }, operation: string, body: object) {
  const { statusCode, body: answer } = await request(`${address}/v1/${operation}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${ROOT_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  // biome-ignore lint/suspicious/noExplicitAny: answers of several shapes
  const fields = (await answer.json()) as any;
  return { ok: statusCode === 200, status: statusCode, ...fields };
}

const newKey = async (): Promise<string> =>
  (await call(controlPlane, 'keys.createKey', { apiId: 'shop', remaining: CREDITS })).key;
const charged = async (key: string) =>
  CREDITS - (await call(other, 'keys.verifyKey', { key, remaining: { cost: 0 } })).remaining;
const stopping = (verifier: Process) =>
  eventually(async () => (await request(`${verifier.adminAddress}/readyz`)).statusCode === 503);

test('streams of proxy mode are waited for, then charged what was said last', async () => {
  const proxy = await start('verifier/main.ts', {
    UPSTREAM_URL: `http://127.0.0.1:${(api.address() as AddressInfo).port}`,
    ...{ PROXY_PORT: '0', PROXY_API_ID: 'shop', PROXY_RESERVE_CREDITS: String(RESERVED) },
    STOP_WAIT_MS: '1500',
  });
  const proxyAddress = /"proxyAddress":"([^"]+)"/.exec(proxy.output)?.[1] ?? '';
  const [ends, says, silent] = await Promise.all([newKey(), newKey(), newKey()]);
  const open = async (path: string, key: string) => {
    const response = await fetch(proxyAddress + path, { headers: { 'x-api-key': key } });
    return response.text().catch(() => 'cut');
  };
  const texts = [open('/ends', ends), open('/says?said=7', says), open('/silent', silent)];
  await eventually(() => streams.size === 3);
  const exit = proxy.stop('SIGTERM');
  await stopping(proxy);
  const last = streams.get('/ends');
  last?.addTrailers({ 'X-Keyfence-Cost': '4' });
  last?.end();
  expect(await Promise.all(texts)).toEqual(['first', 'cut', 'cut']);
  expect(await exit).toBe(0);
  for (const [key, cost] of [
    [ends, 4],
    [says, 7],
    [silent, RESERVED],
  ] as const)
    await eventually(async () => (await charged(key)) === cost, `must cost ${cost}`);
});

test('holds by HTTP are waited for, and none begins', async () => {
  const verifier = await start('verifier/main.ts', { STOP_WAIT_MS: '60000' });
  const key = await newKey();
  const holding = { key, hold: { credits: RESERVED } };
  const holds: string[] = [];
  /** Asks for a hold until the answer is as it must be. */
  const hold = (isRight: (answer: { ok: boolean; status: number }) => boolean) =>
    eventually(async () => {
      const answer = await call(verifier, 'keys.verifyKey', holding);
      if (answer.valid) holds.push(answer.hold.id);
      return isRight(answer);
    });
  for (let i = 0; i < 3; i++) await hold(({ ok }) => ok);
  const exit = verifier.stop('SIGTERM');
  await stopping(verifier);
  await hold(({ status }) => status === 503);
  // Questions without a hold are answered as before.
  expect((await call(verifier, 'keys.verifyKey', { key, remaining: { cost: 0 } })).code).toBe('VALID');
  for (const id of holds)
    expect((await call(verifier, 'keys.release', { hold: id, cost: 3 })).charged).toBe(3);
  expect(await exit).toBe(0);
  await eventually(async () => (await charged(key)) === 3 * holds.length);
});

test.each(['library', 'sidecar'] as const)(
  '%s: holds are waited for, then charged what was said last',
  async (which) => {
    const verifier =
      which === 'library'
        ? createVerifier({ redis: redis.url, apiIds: ['shop'], lookupWaitMs: 10_000, stopWaitMs: 1500 })
        : createClient({ url: other.address, timeoutMs: 10_000, stopWaitMs: 1500 });
    await verifier.ready();
    const app = express();
    const responses = new Map<string, express.Response>();
    app.use(keyfence({ verifier, apiId: 'shop', reserve: RESERVED }));
    app.get('/{*path}', ({ apiKey, path }, response) => {
      if (path !== '/silent') apiKey.charge(path === '/dear' ? 80 : 7);
      response.write('first');
      responses.set(path, response);
    });
    const server = app.listen(0, '127.0.0.1');
    stops.push(() => {
      server.close();
      server.closeAllConnections();
    });
    await new Promise((resolve) => server.once('listening', resolve));
    const paths = { '/ends': 7, '/says': 7, '/dear': 80, '/silent': RESERVED };
    const keys = await Promise.all(Object.keys(paths).map(newKey));
    for (const [i, path] of Object.keys(paths).entries())
      void fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`, {
        headers: { 'x-api-key': keys[i] ?? '' },
      }).then((response) => response.text().catch(() => undefined));
    await eventually(() => responses.size === keys.length);
    let isClosed = false;
    const closed = verifier.close().then(() => {
      isClosed = true;
    });
    await expect(verifier.verify(keys[0] ?? '')).rejects.toThrow('closed');
    responses.get('/ends')?.end('last');
    await eventually(async () => (await charged(keys[0] ?? '')) <= 7 || isClosed);
    expect(isClosed).toBe(false);
    await closed;
    for (const [i, cost] of Object.values(paths).entries())
      await eventually(async () => (await charged(keys[i] ?? '')) === cost, `must cost ${cost}`);
  },
);
