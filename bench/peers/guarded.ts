// A route of a framework, bare or behind the package's middleware: `guarded.ts PORT FRAMEWORK [REDIS_URL]`.
import { serve } from '@hono/node-server';
import express from 'express';
import Fastify from 'fastify';
import { Hono } from 'hono';
import { createVerifier } from '../../verifier/library/verifier.ts';
import { keyfence as expressGuard } from '../../verifier/middleware/express.ts';
import { keyfence as fastifyGuard } from '../../verifier/middleware/fastify.ts';
import { keyfence as honoGuard } from '../../verifier/middleware/hono.ts';

const [port = '', framework = '', redis] = process.argv.slice(2);
const verifier = redis ? createVerifier({ redis, apiIds: ['bench'], lookupWaitMs: 5000 }) : undefined;
await verifier?.ready();
const guard = verifier && { verifier, apiId: 'bench' };
const hostname = '127.0.0.1';

switch (framework) {
  case 'Fastify': {
    const app = Fastify();
    if (guard) await app.register(fastifyGuard, guard);
    app.get('/orders/1', () => ({ order: 1 }));
    await app.listen({ port: Number(port), host: hostname });
    break;
  }
  case 'Express': {
    const app = express();
    if (guard) app.use(expressGuard(guard));
    app.get('/orders/1', (_request, response) => void response.json({ order: 1 }));
    await new Promise<void>((resolve) => app.listen(Number(port), hostname, () => resolve()));
    break;
  }
  case 'Hono': {
    const app = new Hono();
    if (guard) app.use(honoGuard(guard));
    app.get('/orders/1', (context) => context.json({ order: 1 }));
    await new Promise<void>((resolve) =>
      serve({ fetch: app.fetch, port: Number(port), hostname }, () => resolve()),
    );
    break;
  }
}
console.log(JSON.stringify({ ready: true }));
