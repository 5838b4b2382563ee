// An API on Hono that answers only callers with a key. Its settings: REDIS_URL, and PORT (8080).
import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { type KeyfenceVariables, keyfence } from 'keyfence/hono';
import { createVerifier } from 'keyfence/verifier';

const verifier = createVerifier({ redis: process.env['REDIS_URL'] ?? '', apiIds: ['shop'] });
const app = new Hono<{ Variables: KeyfenceVariables }>();
app.get('/health', (context) => context.text('ok'));
// Routes before this line are open; routes after it need a key.
app.use(keyfence({ verifier, apiId: 'shop' }));
app.get('/orders', (context) => context.json({ orders: [], of: context.get('apiKey').keyId }));

await verifier.ready();
const port = Number(process.env['PORT'] ?? 8080);
const server = serve({ fetch: app.fetch, port, hostname: '127.0.0.1' }, (info) => {
  console.log(JSON.stringify({ address: `http://127.0.0.1:${info.port}` }));
});
process.once('SIGTERM', () => {
  // Requests in flight have 10 s.
  server.close(() => void verifier.close());
  setTimeout(() => 'closeAllConnections' in server && server.closeAllConnections(), 10_000).unref();
});
