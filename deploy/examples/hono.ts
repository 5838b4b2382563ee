// An API on Hono, on Node.
import { createAdaptorServer } from '@hono/node-server';
import { Hono } from 'hono';
import { type KeyfenceVariables, keyfence } from 'keyfence/hono';
import type { KeyVerifier } from 'keyfence/verifier';

export async function createServer(verifier: KeyVerifier) {
  const app = new Hono<{ Variables: KeyfenceVariables }>();
  app.get('/health', (context) => context.text('ok'));
  // Routes before this line are open; routes after it need a key.
  app.use(keyfence({ verifier, apiId: 'shop' }));
  app.get('/orders', (context) => context.json({ orders: [], of: context.get('apiKey').keyId }));
  // A guard of one route. Together the two take 5 credits, not 6.
  const dear = keyfence({ verifier, apiId: 'shop', cost: (context) => Number(context.req.param('credits')) });
  app.get('/reports/:credits', dear, (context) => context.json(context.get('apiKey')));
  return createAdaptorServer({ fetch: app.fetch });
}
