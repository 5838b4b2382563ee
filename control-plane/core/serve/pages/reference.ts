import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { App } from '../server.ts';
import { serveAsset } from './asset.ts';
import { headerHtml } from './page.ts';

const PATH = '/docs';
const DECLARED = '/declared.schema.json';

/**
 * Serves the reference, which `npm run docs` writes, at `/docs`. The page may run and style only what it was written with.
 */
export function serveReference(app: App): void {
  const written = readFileSync(new URL('../../../reference.html', import.meta.url), 'utf8');
  const html = written.replace(
    '<body>',
    `<body>${headerHtml(PATH, '<a class="session" href="/dashboard/"></a>')}`,
  );
  const source = (tag: 'script' | 'style') => {
    const [, content = ''] = new RegExp(`<${tag}>(.*?)</${tag}>`, 's').exec(html) ?? [];
    return `${tag}-src 'sha256-${createHash('sha256').update(content).digest('base64')}'`;
  };
  const headers = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': [
      "default-src 'none'",
      ...[source('script'), source('style')],
      ...[
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
      ],
    ].join('; '),
  };
  serveAsset(app, PATH, html, headers);
}

/** Serves the schema of the files that `keyfence apply` reads. */
export function serveDeclaredSchema(app: App, schema: string): void {
  app.get(DECLARED, { schema: { hide: true } }, async (_request, reply) => {
    reply.header('content-type', 'application/schema+json');
    return schema;
  });
}
