// An API on Fastify, 4 or 5.
import Fastify from 'fastify';
import { keyfence } from 'keyfence/fastify';
import type { KeyVerifier } from 'keyfence/verifier';

export async function createServer(verifier: KeyVerifier) {
  const app = Fastify();
  // Register the guard before plugins with routes: each instance inherits the guards that exist when it is
  // created.
  await app.register(keyfence, { verifier, apiId: 'shop' });
  app.get('/health', { config: { apiKey: false } }, () => 'ok');
  app.get('/orders', ({ apiKey }) => ({ orders: [], of: apiKey.keyId }));
  // The rules of one route.
  const cost = ({ params }: { params: unknown }) => Number((params as { credits: string }).credits);
  app.get('/reports/:credits', { config: { apiKey: { cost } } }, ({ apiKey }) => apiKey);
  await app.ready();
  return app.server;
}
