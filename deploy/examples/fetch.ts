// Handlers of the Fetch API, as in Next.js, Remix or tRPC. Here Hono's server for Node calls them.
import { createAdaptorServer } from '@hono/node-server';
import { keyfence } from 'keyfence/fetch';
import type { KeyVerifier } from 'keyfence/verifier';

export async function createServer(verifier: KeyVerifier) {
  const guard = keyfence({
    verifier,
    apiId: 'shop',
    cost: (request) => Number(request.url.split('/reports/')[1] ?? 1),
  });
  // A route handler of Next.js: `export const GET = guard.handler(…)`.
  const orders = guard.handler((_request, apiKey) => Response.json({ orders: [], of: apiKey.keyId }));
  // A loader of Remix, or the context of tRPC.
  const reports = async (request: Request) => {
    const { apiKey, refusal } = await guard.check(request);
    return refusal ?? Response.json(apiKey);
  };
  return createAdaptorServer({
    fetch(request: Request) {
      const { pathname } = new URL(request.url);
      if (pathname === '/health') return new Response('ok');
      return pathname === '/orders' ? orders(request) : reports(request);
    },
  });
}
