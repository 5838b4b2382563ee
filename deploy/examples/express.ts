// An API on Express 5 that answers only callers with a key. Its settings: REDIS_URL, and PORT (8080).
import type { AddressInfo } from 'node:net';
import express from 'express';
import { keyfence } from 'keyfence/express';
import { createVerifier } from 'keyfence/verifier';

const verifier = createVerifier({ redis: process.env['REDIS_URL'] ?? '', apiIds: ['shop'] });
const app = express();
app.get('/health', (_request, response) => void response.send('ok'));
// Routes before this line are open; routes after it need a key.
app.use(keyfence({ verifier, apiId: 'shop' }));
app.get('/orders', (request, response) => void response.json({ orders: [], of: request.apiKey?.keyId }));

await verifier.ready();
const server = app.listen(Number(process.env['PORT'] ?? 8080), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ address: `http://127.0.0.1:${port}` }));
});
process.once('SIGTERM', () => {
  // Requests in flight have 10 s.
  server.close(() => void verifier.close());
  setTimeout(() => server.closeAllConnections(), 10_000).unref();
});
