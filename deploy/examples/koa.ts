// An API on Koa.
import { createServer as createHttpServer } from 'node:http';
import { type KeyfenceState, keyfence } from 'keyfence/koa';
import type { KeyVerifier } from 'keyfence/verifier';
import Koa from 'koa';

export async function createServer(verifier: KeyVerifier) {
  const app = new Koa<KeyfenceState>();
  app.use(async (context, next) => {
    if (context.path === '/health') context.body = 'ok';
    else await next();
  });
  // Middleware before this line is open; middleware after it needs a key.
  app.use(keyfence({ verifier, apiId: 'shop', cost: ({ path }) => Number(path.split('/reports/')[1] ?? 1) }));
  app.use((context) => {
    const { apiKey } = context.state;
    if (context.path === '/orders') context.body = { orders: [], of: apiKey.keyId };
    if (context.path.startsWith('/reports/')) context.body = apiKey;
  });
  return createHttpServer(app.callback());
}
