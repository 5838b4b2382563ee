import { once } from 'node:events';
import { request as ask, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import express from 'express';
import { Hono } from 'hono';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createVerifier } from '../../../../verifier/library/create-verifier.ts';
import { keyfence as expressGuard } from '../../../../verifier/library/guards/express.ts';
import { keyfence as honoGuard, type KeyfenceVariables } from '../../../../verifier/library/guards/hono.ts';
import type { KeyVerifier } from '../../../../verifier/library/key-verifier.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { FRAMEWORKS } from './apps.ts';

let fleet: Fleet;
let key = '';
const closers: (() => unknown)[] = [];

beforeAll(async () => {
  fleet = await Fleet.start();
  ({ key } = await fleet.ok('keys.createKey', { apiId: 'shop' }));
});
afterAll(async () => {
  for (const close of closers) await close();
  await fleet.stop();
});

async function open(): Promise<KeyVerifier> {
  const verifier = createVerifier({ redis: fleet.redisUrl, apiIds: ['shop'], lookupWaitMs: 5000 });
  closers.push(() => verifier.close());
  await verifier.ready();
  return verifier;
}

async function listening(server: ReturnType<typeof createServer>): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(() => server.close().closeAllConnections());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Sends a path as it is written. */
function send(base: string, path: string, headers: Record<string, string> = {}) {
  return new Promise<{ status: number; body: string }>((resolve, reject) => {
    const sent = ask({ ...addressOf(base), path, headers, agent: false }, async (response) => {
      const parts: Buffer[] = [];
      for await (const part of response) parts.push(part);
      resolve({ status: response.statusCode ?? 0, body: Buffer.concat(parts).toString() });
    });
    sent.on('error', reject).end();
  });
}

const addressOf = (base: string) => ({ host: '127.0.0.1', port: new URL(base).port });
const bearer = (secret: string) => ({ authorization: `Bearer ${secret}` });

/** Spellings of `/api/orders` that a framework may take for it, and that a guard at `/api` must take for it then. */
const SPELLINGS = [
  ...[
    '/api/orders',
    '/API/orders',
    '/api/orders/',
    '/api//orders',
    '//api/orders',
    '/api/./orders',
    '/./api/orders',
  ],
  ...[
    '/x/../api/orders',
    '/api%2forders',
    '/%61pi/orders',
    '/api/%6frders',
    '/api;x/orders',
    '/api/orders?x',
    '/api\\orders',
  ],
];

test('a guard of Express covers every spelling', async () => {
  const verifier = await open();
  const app = express();
  let handled = 0;
  app.use('/api', expressGuard({ verifier, apiId: 'shop' }));
  app.get('/api/orders', (_request, response) => void response.json({ handled: ++handled }));
  const base = await listening(createServer(app));
  await fleet.until(async () => (await send(base, '/api/orders', bearer(key))).status === 200);
  const reached: string[] = [];
  for (const path of SPELLINGS) {
    const before = handled;
    await send(base, path);
    expect(handled, path).toBe(before);
    if ((await send(base, path, bearer(key))).status === 200) reached.push(path);
  }
  expect(reached).toContain('/API/orders');
});

test('a guard of Hono covers what is mounted', async () => {
  const verifier = await open();
  let handled = 0;
  const part = new Hono<{ Variables: KeyfenceVariables }>();
  part.get('/orders', (context) => {
    handled++;
    return context.json({ said: context.req.header('x-key-id'), of: context.get('apiKey')?.keyId });
  });
  const guarded = new Hono<{ Variables: KeyfenceVariables }>();
  guarded.use(honoGuard({ verifier, apiId: 'shop' }));
  guarded.route('/', part);
  const app = new Hono();
  app.use('/api/*', honoGuard({ verifier, apiId: 'shop' }));
  app.mount('/api', part.fetch);
  app.mount('/own', guarded.fetch);
  const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' });
  await once(server, 'listening');
  closers.push(() => server.close());
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await fleet.until(async () => (await send(base, '/api/orders', bearer(key))).status === 200);
  for (const path of ['/api/orders', '/own/orders', ...SPELLINGS]) {
    const before = handled;
    await send(base, path);
    expect(handled, path).toBe(before);
  }
  for (const path of ['/api/orders', '/own/orders']) {
    const { status, body } = await send(base, path, { ...bearer(key), 'x-key-id': 'mine' });
    expect([path, status, JSON.parse(body).said]).toEqual([path, 200, undefined]);
  }
});

test.each(['fastify', 'express', 'hono'] as const)('%s: a key of 10 kB is none', async (name) => {
  const app = await FRAMEWORKS[name]({ verifier: await open(), sources: ['bearer', 'x-api-key', 'query'] });
  closers.push(() => app.close());
  const long = key.padEnd(10_000, '0');
  for (const [path, headers] of [
    ['/orders', bearer(long)],
    ['/orders', { 'x-api-key': long }],
    [`/orders?api_key=${long}`, {}],
  ] as const)
    expect((await send(app.address, path, headers)).status).toBe(401);
  expect(app.handled()).toBe(0);
});

test.each(['fastify', 'express', 'hono'] as const)('%s: a closed verifier lets nobody pass', async (name) => {
  const verifier = await open();
  const app = await FRAMEWORKS[name]({ verifier, apiId: 'shop' });
  closers.push(() => app.close());
  const keys = await Promise.all(
    Array.from(
      { length: 20 },
      async () => (await fleet.ok('keys.createKey', { apiId: 'shop' })).key as string,
    ),
  );
  // Some are in memory, the others are being looked up.
  await Promise.all(keys.slice(0, 5).map((each) => verifier.verify(each)));
  const answers = [...keys, ...keys].map((each) => send(app.address, '/orders', bearer(each)));
  await answers[0];
  const closed = verifier.close();
  const late = keys.map((each) => send(app.address, '/orders', bearer(each)));
  const statuses = (await Promise.all(answers)).map(({ status }) => status);
  expect(statuses.filter((status) => status !== 200 && status !== 503)).toEqual([]);
  expect((await Promise.all(late)).map(({ status }) => status)).toEqual(keys.map(() => 503));
  await closed;
  expect(app.handled()).toBe(statuses.filter((status) => status === 200).length);
});

test.each(['fastify', 'express', 'hono'] as const)(
  '%s: a cost that fails later ends no process',
  async (name) => {
    const rejected: unknown[] = [];
    const heard = (reason: unknown) => void rejected.push(reason);
    process.on('unhandledRejection', heard);
    const cost = () => Promise.reject(new Error('late')) as unknown;
    const app = await FRAMEWORKS[name]({ verifier: await open(), cost: cost as () => number });
    closers.push(() => app.close());
    expect((await send(app.address, '/orders', bearer(key))).status).toBe(500);
    // Unhandled rejections are told before the next turn of the event loop.
    await new Promise((turn) => setImmediate(turn));
    process.off('unhandledRejection', heard);
    expect(rejected).toEqual([]);
    expect(app.handled()).toBe(0);
  },
);
