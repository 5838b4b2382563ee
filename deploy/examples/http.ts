// An API on node:http alone.
import { createServer as createHttpServer } from 'node:http';
import { keyfence } from 'keyfence/http';
import type { KeyVerifier } from 'keyfence/verifier';

export async function createServer(verifier: KeyVerifier) {
  const guard = keyfence({
    verifier,
    apiId: 'shop',
    cost: (request) => Number(request.url?.split('/reports/')[1] ?? 1),
  });
  return createHttpServer((request, response) => {
    if (request.url === '/health') {
      response.end('ok');
      return;
    }
    guard(request, response, (apiKey) => {
      response.setHeader('Content-Type', 'application/json');
      response.end(JSON.stringify(request.url === '/orders' ? { orders: [], of: apiKey.keyId } : apiKey));
    });
  });
}
