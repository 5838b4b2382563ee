import { join } from 'node:path';
import fastifyStatic from '@fastify/static';
import type { App } from '../server.ts';

const ASSETS = join(import.meta.dirname, '..', '..', 'dashboard', 'assets');

/**
 * The dashboard loads scripts and styles only from this server and talks only to this server. No text can
 * become markup or code, whatever a name or a meta contains and whatever bug the dashboard has.
 */
const CSP = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "font-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

/**
 * Serves the dashboard, built by `npm run dashboard`, at `/dashboard/`, and redirects `/` there. The
 * dashboard is an ordinary client of the API.
 */
export async function serveDashboard(app: App): Promise<void> {
  app.get('/', { schema: { hide: true } }, async (_request, reply) => reply.redirect('dashboard/'));
  app.get('/dashboard', { schema: { hide: true } }, async (_request, reply) => reply.redirect('dashboard/'));
  await app.register(fastifyStatic, {
    root: ASSETS,
    prefix: '/dashboard/',
    // Register a route for each file, so that every other path keeps its usual answer.
    wildcard: false,
    cacheControl: false,
    decorateReply: false,
    // no-cache: browsers keep files but revalidate them, so that nobody uses an outdated version
    setHeaders: (reply) => reply.headers({ 'content-security-policy': CSP, 'cache-control': 'no-cache' }),
  });
}
