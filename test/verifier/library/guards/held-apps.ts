import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { serve } from '@hono/node-server';
import express from 'express';
import Fastify from 'fastify';
import { Hono } from 'hono';
import Koa from 'koa';
import { keyfence as expressGuard } from '../../../../verifier/library/guards/express.ts';
import { keyfence as fastifyGuard } from '../../../../verifier/library/guards/fastify.ts';
import { keyfence as fetchGuard } from '../../../../verifier/library/guards/fetch.ts';
import type { GuardOptions, PassedKey } from '../../../../verifier/library/guards/guard-options.ts';
import { keyfence as honoGuard, type KeyfenceVariables } from '../../../../verifier/library/guards/hono.ts';
import { type KeyfenceState, keyfence as koaGuard } from '../../../../verifier/library/guards/koa.ts';
import { keyfence as httpGuard } from '../../../../verifier/library/guards/node-http.ts';

/** Ends the servers of a file. */
export const closers: (() => unknown)[] = [];

/** The paths of requests that reached a handler. */
export const handled: string[] = [];

type Answer = string | number | ReadableStream<Uint8Array> | Promise<never>;

/**
 * Answers by the path: `/charge/7` costs 7 and `/tokens/7` as many tokens, `/twice/7` costs 7 and is tried again for 5, `/204` has no body, `/stream` goes on after its first part, `/breaks` fails
 * after it, `/dear` costs 12, `/throws` fails at once, and `/silent` does not answer. The others charge 3 before.
 */
function act({ charge }: PassedKey, path: string): Answer {
  handled.push(path);
  if (path === '/throws') throw new Error('the handler failed');
  const [, what, cost] = /^\/(charge|tokens|twice)\/(\d+)$/.exec(path) ?? [];
  if (what === 'twice') return String(charge.add(Number(cost)) && charge.add(5));
  if (cost !== undefined) return String(charge(what === 'tokens' ? { tokens: Number(cost) } : Number(cost)));
  if (path === '/nothing') return 'done';
  charge(path === '/dear' ? 12 : 3);
  if (path === '/silent') return new Promise<never>(() => undefined);
  if (/^\/\d+$/.test(path)) return Number(path.slice(1));
  const first = new TextEncoder().encode('first');
  return new ReadableStream({
    start: (controller) => controller.enqueue(first),
    pull: (controller) => (path === '/breaks' ? controller.error(new Error('the stream failed')) : undefined),
  });
}

async function send(response: ServerResponse, answer: Answer): Promise<void> {
  const body = await answer;
  if (typeof body === 'object')
    Readable.fromWeb(body as never)
      .on('error', () => response.destroy())
      .pipe(response);
  else if (typeof body === 'number') response.writeHead(body).end();
  else response.end(body);
}

async function responseOf(answer: Answer): Promise<Response> {
  const body = await answer;
  return typeof body === 'number' ? new Response(null, { status: body }) : new Response(body);
}

export interface App {
  /** undefined = it has no server. */
  readonly port?: number;
  fetch(path: string, key: string, signal?: AbortSignal, method?: string): Promise<Response>;
  /** Resolves when a request has arrived. */
  arrivals?(): Promise<unknown>;
}

export async function open(server: {
  address(): unknown;
  listening: boolean;
  once(event: 'listening' | 'request', run: () => void): unknown;
  close(): unknown;
}): Promise<App> {
  if (!server.listening) await new Promise<void>((resolve) => server.once('listening', resolve));
  closers.push(() => {
    server.close();
    (server as Partial<import('node:http').Server>).closeAllConnections?.();
  });
  const { port } = server.address() as AddressInfo;
  return {
    port,
    arrivals: () => new Promise<void>((resolve) => server.once('request', resolve)),
    fetch: (path, key, signal, method = 'GET') =>
      fetch(`http://127.0.0.1:${port}${path}`, {
        method,
        headers: { 'x-api-key': key },
        ...(signal && { signal }),
      }),
  };
}

const honoApp = (options: GuardOptions) => {
  const app = new Hono<{ Variables: KeyfenceVariables }>();
  app.use(honoGuard(options));
  app.get('*', ({ get, req }) => responseOf(act(get('apiKey'), req.path)));
  app.onError((_error, context) => context.body(null, 500));
  return app;
};

export const FRAMEWORKS: Readonly<Record<string, (options: GuardOptions) => Promise<App>>> = {
  async express(options) {
    const app = express();
    app.use(expressGuard(options));
    app.get('/{*path}', ({ apiKey, path }, response) => void send(response, act(apiKey, path)));
    app.use(
      (_error: Error, _request: express.Request, response: express.Response, _next: express.NextFunction) => {
        response.status(500).end();
      },
    );
    return open(app.listen(0, '127.0.0.1'));
  },
  async fastify(options) {
    const app = Fastify();
    await app.register(fastifyGuard, options);
    app.get('*', ({ apiKey, url }, reply) => {
      const body = act(apiKey, url);
      return body instanceof ReadableStream || typeof body === 'number'
        ? reply.status(Number(body) || 200).send(typeof body === 'number' ? undefined : body)
        : body;
    });
    await app.listen({ port: 0, host: '127.0.0.1' });
    return open(app.server);
  },
  async hono(options) {
    return open(serve({ fetch: honoApp(options).fetch, port: 0, hostname: '127.0.0.1' }) as never);
  },
  async 'hono without Node'(options) {
    const app = honoApp(options);
    return {
      fetch: async (path, key, signal, method = 'GET') =>
        app.request(path, { method, headers: { 'x-api-key': key }, ...(signal && { signal }) }),
    };
  },
  async koa(options) {
    const app = new Koa<KeyfenceState>();
    app.silent = true;
    app.use(koaGuard(options));
    app.use(async (context) => {
      const body = await act(context.state.apiKey, context.path);
      if (typeof body === 'number') context.status = body;
      else context.body = typeof body === 'string' ? body : Readable.fromWeb(body as never);
    });
    return open(app.listen(0, '127.0.0.1'));
  },
  async http(options) {
    const guard = httpGuard(options as GuardOptions<IncomingMessage>);
    const server = createServer((request, response) =>
      guard(request, response, (apiKey) => {
        try {
          void send(response, act(apiKey, request.url ?? ''));
        } catch {
          response.writeHead(500).end();
        }
      }),
    );
    return open(server.listen(0, '127.0.0.1'));
  },
  async fetch(options) {
    return open(serve({ fetch: fetchApp(options), port: 0, hostname: '127.0.0.1' }) as never);
  },
  async 'fetch without Node'(options) {
    const answer = fetchApp(options);
    return {
      fetch: (path, key, signal, method = 'GET') =>
        answer(
          new Request(`http://api${path}`, {
            method,
            headers: { 'x-api-key': key },
            ...(signal && { signal }),
          }),
        ),
    };
  },
};

function fetchApp(options: GuardOptions): (request: Request) => Promise<Response> {
  const handler = fetchGuard(options as GuardOptions<Request>).handler((request: Request, apiKey) =>
    responseOf(act(apiKey, new URL(request.url).pathname)),
  );
  return (request) => handler(request).catch(() => new Response(null, { status: 500 }));
}
