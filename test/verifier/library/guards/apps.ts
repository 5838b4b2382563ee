import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { serve } from '@hono/node-server';
import express from 'express';
import Fastify from 'fastify';
import { Hono } from 'hono';
import Koa from 'koa';
import { keyfence as expressGuard } from '../../../../verifier/library/guards/express.ts';
import { keyfence as fastifyGuard } from '../../../../verifier/library/guards/fastify.ts';
import { keyfence as fetchGuard } from '../../../../verifier/library/guards/fetch.ts';
import type { GuardOptions } from '../../../../verifier/library/guards/guard-options.ts';
import { keyfence as honoGuard, type KeyfenceVariables } from '../../../../verifier/library/guards/hono.ts';
import { type KeyfenceState, keyfence as koaGuard } from '../../../../verifier/library/guards/koa.ts';
import { keyfence as httpGuard } from '../../../../verifier/library/guards/node-http.ts';

/** An application of a test, guarded but for `/open`. */
export interface App {
  readonly address: string;
  /** Runs of any handler behind the guard. */
  readonly handled: () => number;
  close(): Promise<void>;
}

/** Says what a handler sees. */
const seen = (apiKey: object | undefined, headers: unknown) => ({ apiKey, headers });

/** Routes with a second guard, and how it differs from the first. */
const MORE: Readonly<Record<string, GuardOptions>> = {
  '/guarded/same': {},
  '/guarded/dearer': { cost: 10 },
  '/guarded/permitted': { permissions: 'a', cost: () => 1 },
};

/** Routes of the frameworks that have no router of their own. */
const ROUTES: ReadonlySet<string> = new Set(['/orders', '/sub/orders', ...Object.keys(MORE)]);

/**
 * The same application in each framework: `/open`, `/orders`, `/throws`, `/sub/orders` in a part of its own, and the routes
 * of `MORE`.
 */
export const FRAMEWORKS: Readonly<
  Record<'fastify' | 'express' | 'hono' | 'koa' | 'http' | 'fetch', (options: GuardOptions) => Promise<App>>
> = {
  async fastify(options) {
    let handled = 0;
    const app = Fastify();
    await app.register(fastifyGuard, options);
    app.get('/open', { config: { apiKey: false } }, () => 'open');
    app.all('/orders', ({ apiKey, headers }) => {
      handled++;
      return seen(apiKey, headers);
    });
    app.get('/throws', () => {
      handled++;
      throw new Error('the handler failed');
    });
    for (const [path, more] of Object.entries(MORE)) {
      await app.register((part, _options, done) => {
        part.register(fastifyGuard, { ...options, ...more });
        part.get(path, ({ apiKey, headers }) => seen(apiKey, headers));
        done();
      });
    }
    await app.register(
      (part, _options, done) => {
        part.get('/orders', ({ apiKey, headers }) => {
          handled++;
          return seen(apiKey, headers);
        });
        done();
      },
      { prefix: '/sub' },
    );
    const address = await app.listen({ port: 0, host: '127.0.0.1' });
    return { address, handled: () => handled, close: () => app.close() };
  },
  async express(options) {
    let handled = 0;
    const app = express();
    app.get('/open', (_request, response) => void response.send('open'));
    const guard = expressGuard(options);
    app.use(guard);
    app.all('/orders', ({ apiKey, headers }, response) => {
      handled++;
      response.json(seen(apiKey, headers));
    });
    app.get('/throws', () => {
      handled++;
      throw new Error('the handler failed');
    });
    for (const [path, more] of Object.entries(MORE)) {
      app.get(path, expressGuard({ ...options, ...more }), ({ apiKey, headers }, response) => {
        response.json(seen(apiKey, headers));
      });
    }
    // Guarded twice.
    app.use(
      '/sub',
      express
        .Router()
        .use(guard)
        .get('/orders', ({ apiKey, headers }, response) => {
          handled++;
          response.json(seen(apiKey, headers));
        }),
    );
    app.use(
      (error: Error, _request: express.Request, response: express.Response, _next: express.NextFunction) => {
        response.status(500).set('x-error', encodeURIComponent(error.message)).end();
      },
    );
    const server = app.listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    return { address: addressOf(server), handled: () => handled, close: async () => end(server) };
  },
  async hono(options) {
    let handled = 0;
    const app = new Hono<{ Variables: KeyfenceVariables }>();
    app.get('/open', (context) => context.text('open'));
    app.use(honoGuard(options));
    app.all('/orders', (context) => {
      handled++;
      return context.json(seen(context.get('apiKey'), context.req.header()));
    });
    app.get('/throws', () => {
      handled++;
      throw new Error('the handler failed');
    });
    for (const [path, more] of Object.entries(MORE)) {
      app.get(path, honoGuard({ ...options, ...more }), (context) =>
        context.json(seen(context.get('apiKey'), context.req.header())),
      );
    }
    const part = new Hono<{ Variables: KeyfenceVariables }>();
    part.get('/orders', (context) => {
      handled++;
      return context.json(seen(context.get('apiKey'), context.req.header()));
    });
    app.route('/sub', part);
    app.onError((error, context) =>
      context.body(null, 500, { 'x-error': encodeURIComponent(error.message) }),
    );
    const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' });
    await new Promise((resolve) => server.once('listening', resolve));
    return { address: addressOf(server), handled: () => handled, close: async () => end(server) };
  },
  async koa(options) {
    let handled = 0;
    const app = new Koa<KeyfenceState>();
    app.silent = true;
    app.use(async (context, next) => {
      if (context.path === '/open') context.body = 'open';
      else await next();
    });
    app.use(koaGuard(options));
    app.use(async (context, next) => {
      const more = MORE[context.path];
      if (more === undefined) await next();
      else await koaGuard({ ...options, ...more })(context as never, next);
    });
    app.use((context) => {
      if (context.path === '/throws') {
        handled++;
        throw new Error('the handler failed');
      }
      if (!ROUTES.has(context.path)) return;
      handled++;
      context.body = seen(context.state.apiKey, context.headers);
    });
    const server = app.listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    return { address: addressOf(server), handled: () => handled, close: async () => end(server) };
  },
  async http(options) {
    let handled = 0;
    const { throwRefusals: _, ...rest } = options;
    const guard = httpGuard(rest);
    const guards = new Map(
      Object.entries(MORE).map(([path, more]) => [path, httpGuard({ ...rest, ...more })]),
    );
    const server = createServer((request, response) => {
      const path = request.url?.split('?')[0] ?? '';
      if (path === '/open') {
        response.end('open');
        return;
      }
      const handle = () => {
        handled++;
        if (path === '/throws') response.writeHead(500);
        else if (!ROUTES.has(path)) response.writeHead(404);
        response.end(JSON.stringify(seen((request as { apiKey?: object }).apiKey, request.headers)));
      };
      const more = guards.get(path);
      guard(request, response, () => {
        if (more) more(request, response, handle);
        else handle();
      });
    });
    server.listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    return { address: addressOf(server), handled: () => handled, close: async () => end(server) };
  },
  async fetch(options) {
    let handled = 0;
    const guard = fetchGuard(options as GuardOptions<Request>);
    const guards = new Map(
      Object.entries(MORE).map(([path, more]) => [
        path,
        fetchGuard({ ...options, ...more } as GuardOptions<Request>),
      ]),
    );
    const handler = guard.handler((request: Request, apiKey) => {
      const path = new URL(request.url).pathname;
      const handle = (_request: Request, key: object) => {
        handled++;
        if (path === '/throws') throw new Error('the handler failed');
        return Response.json(seen(key, Object.fromEntries(request.headers)), {
          status: ROUTES.has(path) ? 200 : 404,
        });
      };
      const more = guards.get(path);
      return more ? more.handler(handle)(request) : handle(request, apiKey);
    });
    const server = serve({
      fetch: (request: Request) =>
        new URL(request.url).pathname === '/open'
          ? new Response('open')
          : handler(request).catch(() => new Response(null, { status: 500 })),
      port: 0,
      hostname: '127.0.0.1',
    });
    await new Promise((resolve) => server.once('listening', resolve));
    return { address: addressOf(server), handled: () => handled, close: async () => end(server) };
  },
};

type Server = Pick<import('node:http').Server, 'close' | 'closeAllConnections'>;

const addressOf = (server: { address(): unknown }) =>
  `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

function end(server: { close(): unknown }): void {
  server.close();
  (server as Partial<Server>).closeAllConnections?.();
}
