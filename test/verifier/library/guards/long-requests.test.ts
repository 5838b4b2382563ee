import { once } from 'node:events';
import { createServer, get as httpGet, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import websocket from '@fastify/websocket';
import { serve } from '@hono/node-server';
import express from 'express';
import Fastify from 'fastify';
import { Hono } from 'hono';
import { streamSSE } from 'hono/streaming';
import Koa from 'koa';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { createClient } from '../../../../verifier/library/client.ts';
import { createVerifier } from '../../../../verifier/library/create-verifier.ts';
import { endWithKey, keyfence as expressGuard } from '../../../../verifier/library/guards/express.ts';
import {
  endWithKey as endFastify,
  keyfence as fastifyGuard,
} from '../../../../verifier/library/guards/fastify.ts';
import { keyfence as fetchGuard, watchKey as watchFetch } from '../../../../verifier/library/guards/fetch.ts';
import { keyfence as honoGuard, watchKey as watchHono } from '../../../../verifier/library/guards/hono.ts';
import {
  endWithKey as endKoa,
  type KeyfenceState,
  keyfence as koaGuard,
} from '../../../../verifier/library/guards/koa.ts';
import { keyfence as httpGuard } from '../../../../verifier/library/guards/node-http.ts';
import type { KeyVerifier } from '../../../../verifier/library/key-verifier.ts';
import { createTestVerifier } from '../../../../verifier/library/test-verifier.ts';
import { Fleet } from '../../../harness/fleet.ts';

/** After `complete`, a long request may go on for this time. */
const CUT_MS_MAX = 1000;
/** What a busy machine may add to it. */
const SLACK_MS = 1000;

let fleet: Fleet;
const ways: Record<string, KeyVerifier> = {};
let closers: (() => unknown)[] = [];

beforeAll(async () => {
  fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000' } });
  await fleet.ok('apis.createApi', { apiId: 'shop', name: 'shop' });
  ways['in this process'] = createVerifier({ redis: fleet.redisUrl, apiIds: ['shop'], lookupWaitMs: 5000 });
  ways['through a sidecar'] = createClient({ url: fleet.verifiers[0]?.address ?? '' });
  for (const way of Object.values(ways)) await way.ready();
});
afterEach(async () => {
  for (const close of closers) await close();
  closers = [];
});
afterAll(async () => {
  for (const way of Object.values(ways)) await way.close();
  await fleet.stop();
});

async function listening(server: Server): Promise<string> {
  if (!server.listening) await once(server.listen(0, '127.0.0.1'), 'listening');
  closers.push(() => server.close().closeAllConnections());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Long requests, each in an application of its own. */
const LONG: Readonly<Record<string, (verifier: KeyVerifier) => Promise<{ url: string; isSocket: boolean }>>> =
  {
    async 'a WebSocket of ws on node:http'(verifier) {
      const guard = httpGuard({ verifier, apiId: 'shop' });
      const sockets = new WebSocketServer({ noServer: true });
      const server = createServer();
      server.on('upgrade', (request, socket, head) =>
        guard.upgrade(request, socket, () =>
          sockets.handleUpgrade(request, socket, head, (webSocket) => {
            endWithKey(request, webSocket);
            webSocket.send('hello');
          }),
        ),
      );
      return { url: await listening(server), isSocket: true };
    },
    async 'a WebSocket of Fastify'(verifier) {
      const app = Fastify();
      await app.register(fastifyGuard, { verifier, apiId: 'shop' });
      await app.register(websocket);
      app.get('/', { websocket: true }, (webSocket, request) => {
        endFastify(request, webSocket);
        webSocket.send('hello');
      });
      await app.ready();
      closers.push(() => app.close());
      return { url: await listening(app.server), isSocket: true };
    },
    async 'server-sent events of Fastify'(verifier) {
      const app = Fastify();
      await app.register(fastifyGuard, { verifier, apiId: 'shop' });
      app.get('/', (request, reply) => {
        reply.hijack();
        reply.raw.write('data: hello\n\n');
        endFastify(request, reply.raw);
      });
      await app.ready();
      return { url: await listening(app.server), isSocket: false };
    },
    async 'server-sent events of Express'(verifier) {
      const app = express().use(expressGuard({ verifier, apiId: 'shop' }));
      app.get('/', (request, response) => {
        response.write('data: hello\n\n');
        endWithKey(request, response);
      });
      return { url: await listening(createServer(app)), isSocket: false };
    },
    async 'a stream of Koa'(verifier) {
      const app = new Koa<KeyfenceState>().use(koaGuard({ verifier, apiId: 'shop' }));
      app.use((context) => {
        context.respond = false;
        context.res.write('data: hello\n\n');
        endKoa(context, context.res);
      });
      return { url: await listening(createServer(app.callback())), isSocket: false };
    },
    async 'server-sent events of Hono'(verifier) {
      const app = new Hono().use(honoGuard({ verifier, apiId: 'shop' }) as never);
      app.get('/', (context) =>
        streamSSE(context, async (stream) => {
          await stream.writeSSE({ data: 'hello' });
          const over = watchHono(context);
          if (!over.aborted) await once(over, 'abort');
        }),
      );
      const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }) as Server;
      await once(server, 'listening');
      return { url: await listening(server), isSocket: false };
    },
    async 'a stream of the Fetch API'(verifier) {
      const guard = fetchGuard({ verifier, apiId: 'shop' });
      const handler = guard.handler((request: Request) => {
        const over = new AbortController();
        const body = new ReadableStream({
          start(controller) {
            controller.enqueue(new TextEncoder().encode('data: hello\n\n'));
            watchFetch(request, over.signal).addEventListener('abort', () => controller.close());
          },
          cancel: () => over.abort(),
        });
        return new Response(body);
      });
      const server = serve({ fetch: handler, port: 0, hostname: '127.0.0.1' }) as Server;
      await once(server, 'listening');
      return { url: await listening(server), isSocket: false };
    },
  };

interface Begun {
  /** Resolves at the end, with the close code of a WebSocket. */
  readonly ended: Promise<unknown>;
}

/** Opens a long request; resolves once it has said hello. */
async function begin(url: string, isSocket: boolean, key: string): Promise<Begun> {
  const headers = { Authorization: `Bearer ${key}` };
  if (isSocket) {
    const socket = new WebSocket(`ws://${url}/`, { headers });
    closers.push(() => socket.terminate());
    const ended = new Promise((resolve) => socket.on('close', resolve));
    await once(socket, 'message');
    return { ended };
  }
  const request = httpGet(`http://${url}/`, { headers, agent: false });
  closers.push(() => request.destroy());
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const ended = new Promise((resolve) => {
    response.on('error', () => undefined).on('close', () => resolve(undefined));
  });
  await once(response, 'data');
  response.resume();
  return { ended };
}

describe.each(['in this process', 'through a sidecar'])('%s', (way) => {
  test.each(Object.keys(LONG))('%s ends within 1 s of a complete disable', async (kind) => {
    const { url, isSocket } = (await LONG[kind]?.(ways[way] as KeyVerifier)) ?? {
      url: '',
      isSocket: false,
    };
    const [lost, kept] = [
      await fleet.ok('keys.createKey', { apiId: 'shop' }),
      await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 1 }),
    ];
    const [other, mine] = await Promise.all([begin(url, isSocket, kept.key), begin(url, isSocket, lost.key)]);
    let othersEnded = false;
    void other.ended.then(() => {
      othersEnded = true;
    });
    const { propagation } = await fleet.ok('keys.updateKey', { keyId: lost.keyId, enabled: false });
    const completeAtMs = performance.now();
    expect(propagation).toMatchObject({ state: 'complete', by: 'acks' });
    const closeCode = await mine.ended;
    expect(performance.now() - completeAtMs).toBeLessThan(CUT_MS_MAX + SLACK_MS);
    if (isSocket) expect(closeCode).toBe(1008);
    // The other one paid its last credit at its beginning, and goes on.
    expect(othersEnded).toBe(false);
  });

  test('a watch says why it ended, and costs nothing', async () => {
    const verifier = ways[way] as KeyVerifier;
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', remaining: 5 });
    await fleet.until(async () => (await verifier.verify(key)).code === 'VALID');
    const until = new AbortController();
    const watch = verifier.watch(key, { apiId: 'shop', signal: until.signal });
    const ended = verifier.watch(key, { signal: until.signal });
    const foreign = verifier.watch(key, { apiId: 'other', signal: until.signal });
    const unknown = verifier.watch('', { signal: until.signal });
    if (!foreign.aborted) await once(foreign, 'abort');
    if (!unknown.aborted) await once(unknown, 'abort');
    expect(foreign.reason).toMatchObject({ name: 'WatchError', code: 'FORBIDDEN' });
    expect(unknown.reason).toMatchObject({ code: 'NOT_FOUND' });
    until.abort();
    await fleet.ok('keys.updateKey', { keyId, permissions: ['a'] });
    const mine = new AbortController();
    const lacking = verifier.watch(key, { permissions: 'b', signal: mine.signal });
    if (!lacking.aborted) await once(lacking, 'abort');
    expect(lacking.reason).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
    expect([watch.aborted, ended.aborted]).toEqual([false, false]);
    expect(await verifier.verify(key, { remaining: { cost: 0 } })).toMatchObject({ remaining: 4 });
    expect(() => verifier.watch(key, {} as never)).toThrow('signal: must be an AbortSignal');
    expect(() => verifier.watch(key, { signal: mine.signal, tags: [] } as never)).toThrow(
      'tags: unknown option',
    );
  });
});

test('a watch ends with the lease or the sidecar', async () => {
  const own = await Fleet.start({ env: { LOOKUP_WAIT_MS: '1000' } });
  const local = createVerifier({ redis: own.redisUrl, apiIds: ['shop'] });
  const sidecar = createClient({ url: own.verifiers[0]?.address ?? '' });
  try {
    await Promise.all([local.ready(), sidecar.ready()]);
    const { key } = await own.ok('keys.createKey', { apiId: 'shop' });
    for (const each of [local, sidecar])
      await own.until(async () => (await each.verify(key)).code === 'VALID');
    const { signal } = new AbortController();
    const [first, second, third] = [
      local.watch(key, { signal }),
      sidecar.watch(key, { signal }),
      local.watch(key, { signal }),
    ];
    await own.verifiers[0]?.stop();
    own.verifiers.pop();
    if (!second.aborted) await once(second, 'abort');
    expect(second.reason).toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
    expect([first.aborted, third.aborted]).toEqual([false, false]);
    await own.redis.stop();
    if (!first.aborted) await once(first, 'abort');
    expect(first.reason).toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
  } finally {
    await Promise.all([local.close(), sidecar.close()]);
    await own.stop();
  }
});

test('a watch ends when its verifier is closed', async () => {
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  const { signal } = new AbortController();
  for (const verifier of [
    createVerifier({ redis: fleet.redisUrl, apiIds: ['shop'], lookupWaitMs: 5000 }),
    createClient({ url: fleet.verifiers[0]?.address ?? '' }),
  ]) {
    await verifier.ready();
    await fleet.until(async () => (await verifier.verify(key)).code === 'VALID');
    const watch = verifier.watch(key, { signal });
    await verifier.close();
    if (!watch.aborted) await once(watch, 'abort');
    expect(watch.reason).toMatchObject({ code: 'CLOSED' });
    const late = verifier.watch(key, { signal });
    if (!late.aborted) await once(late, 'abort');
    expect(late.reason).toMatchObject({ code: 'CLOSED' });
  }
});

test('no refused request is watched', () => {
  expect(() => endWithKey({} as IncomingMessage, {} as never)).toThrow(
    'no guard of keyfence let this request pass',
  );
});

test('a closed connection is watched no longer', async () => {
  const ends: AbortSignal[] = [];
  const verifier = createTestVerifier({ key: 'valid' });
  const { watch } = verifier;
  verifier.watch = (key, options) => {
    ends.push(options.signal);
    return watch.call(verifier, key, options);
  };
  const guard = httpGuard({ verifier });
  const server = createServer((request, response) =>
    guard(request, response, () => {
      endWithKey(request, response);
      response.end('hello', () => endWithKey(request, Object.assign(response, { destroyed: true })));
    }),
  );
  const hono = new Hono().use(honoGuard({ verifier }) as never);
  hono.get('/', (context) => {
    watchHono(context);
    return context.text('hello');
  });
  const other = serve({ fetch: hono.fetch, port: 0, hostname: '127.0.0.1' }) as Server;
  await once(other, 'listening');
  for (const url of [await listening(server), await listening(other)]) {
    const headers = { authorization: 'Bearer key' };
    expect(await (await fetch(`http://${url}/`, { headers })).text()).toBe('hello');
  }
  await fleet.until(() => ends.length === 3 && ends.every(({ aborted }) => aborted));
});
