import { readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import type { App } from '../server.ts';
import { serveAsset } from './asset.ts';

/** The types of the files in `assets/`. */
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
  '.woff2': 'font/woff2',
};

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
 * Serves the dashboard, built by `npm run dashboard` into this folder, at `/dashboard/`, and redirects `/` there. The
 * dashboard is an ordinary client of the API.
 */
export function serveDashboard(app: App, folder: string): void {
  app.get('/', { schema: { hide: true } }, async (_request, reply) => reply.redirect('dashboard/'));
  app.get('/dashboard', { schema: { hide: true } }, async (_request, reply) => reply.redirect('dashboard/'));
  for (const file of readdirSync(folder)) {
    const headers = { 'content-type': TYPES[extname(file)] ?? '', 'content-security-policy': CSP };
    const content = readFileSync(join(folder, file));
    serveAsset(app, `/dashboard/${file}`, content, headers);
    if (file === 'index.html') serveAsset(app, '/dashboard/', content, headers);
  }
}
