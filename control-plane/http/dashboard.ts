import { join } from 'node:path';
import fastifyStatic from '@fastify/static';
import type { App } from './server.ts';

const ASSETS = join(import.meta.dirname, '..', 'dashboard', 'assets');

/**
 * Scripts and styles are files of ours, it talks to this server only, and no text can become markup or code: whatever
 * somebody put into a name or a meta, and whatever a bug makes of it.
 */
const CSP = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

/** Serves the dashboard, as `npm run dashboard` built it, at `/dashboard/`, where `/` leads; it is a client of the API like any other. */
export async function serveDashboard(app: App): Promise<void> {
  app.get('/', { schema: { hide: true } }, async (_request, reply) => reply.redirect('dashboard/'));
  app.get('/dashboard', { schema: { hide: true } }, async (_request, reply) => reply.redirect('dashboard/'));
  await app.register(async (scope) => {
    scope.addHook('onRequest', async (_request, reply) => {
      // no-cache: kept, but asked about each time, so that nobody goes on with yesterday's
      reply.header('content-security-policy', CSP).header('cache-control', 'no-cache');
    });
    await scope.register(fastifyStatic, {
      root: ASSETS,
      prefix: '/dashboard/',
      // A route for each file, so that every other path is answered as it always was.
      wildcard: false,
      cacheControl: false,
      decorateReply: false,
    });
  });
}
