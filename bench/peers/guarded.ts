// A route of a framework: `guarded.ts PORT FRAMEWORK GUARD [REDIS_URL]`. GUARD: bare or twin, empty (a
// middleware that does nothing), digest (a middleware that only hashes the key), idle (a verifier that is
// never asked) or keyfence; the last two need Redis.
import type { IncomingMessage } from 'node:http';
import { serve } from '@hono/node-server';
import express from 'express';
import Fastify from 'fastify';
import { Hono } from 'hono';
import { digestOf } from '../../shared/rules/key-format.ts';
import { createVerifier } from '../../verifier/library/create-verifier.ts';
import { keyfence as expressGuard } from '../../verifier/library/guards/express.ts';
import { keyfence as fastifyGuard } from '../../verifier/library/guards/fastify.ts';
import { keyfence as honoGuard } from '../../verifier/library/guards/hono.ts';

const [port = '', framework = '', kind = '', redis] = process.argv.slice(2);
const verifier = redis ? createVerifier({ redis, apiIds: ['bench'], lookupWaitMs: 5000 }) : undefined;
await verifier?.ready();
const guard = verifier && kind === 'keyfence' && { verifier, apiId: 'bench' };
const isOther = kind === 'empty' || kind === 'digest';
const hostname = '127.0.0.1';

/** The work of the other middleware; the fourth string of the load's headers is `Bearer` and the key. */
function look({ rawHeaders }: IncomingMessage): void {
  if (kind === 'digest') digestOf((rawHeaders[3] ?? '').slice(7));
}

switch (framework) {
  case 'Fastify': {
    const app = Fastify();
    if (guard) await app.register(fastifyGuard, guard);
    if (isOther) {
      app.addHook('onRequest', ({ raw }, _reply, next) => {
        look(raw);
        next();
      });
    }
    app.get('/orders/1', () => ({ order: 1 }));
    await app.listen({ port: Number(port), host: hostname });
    break;
  }
  case 'Express': {
    const app = express();
    if (guard) app.use(expressGuard(guard));
    if (isOther) {
      app.use((request, _response, next) => {
        look(request);
        next();
      });
    }
    app.get('/orders/1', (_request, response) => void response.json({ order: 1 }));
    await new Promise<void>((resolve) => app.listen(Number(port), hostname, () => resolve()));
    break;
  }
  case 'Hono': {
    const app = new Hono<{ Bindings: { incoming: IncomingMessage } }>();
    if (guard) app.use(honoGuard(guard));
    if (isOther) {
      app.use(({ env }, next) => {
        look(env.incoming);
        return next();
      });
    }
    app.get('/orders/1', (context) => context.json({ order: 1 }));
    await new Promise<void>((resolve) =>
      serve({ fetch: app.fetch, port: Number(port), hostname }, () => resolve()),
    );
    break;
  }
}
console.log(JSON.stringify({ ready: true }));
