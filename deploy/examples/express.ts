// An API on Express, 4 or 5.
import { createServer as createHttpServer } from 'node:http';
import express from 'express';
import { keyfence } from 'keyfence/express';
import type { KeyVerifier } from 'keyfence/verifier';

export async function createServer(verifier: KeyVerifier) {
  const app = express();
  app.get('/health', (_request, response) => void response.send('ok'));
  // Routes before this line are open; routes after it need a key.
  app.use(keyfence({ verifier, apiId: 'shop' }));
  app.get('/orders', (request, response) => void response.json({ orders: [], of: request.apiKey.keyId }));
  // A guard of one route. Together the two take 5 credits, not 6.
  const dear = keyfence({ verifier, apiId: 'shop', cost: (request) => Number(request.params['credits']) });
  app.get('/reports/:credits', dear, (request, response) => void response.json(request.apiKey));
  return createHttpServer(app);
}
