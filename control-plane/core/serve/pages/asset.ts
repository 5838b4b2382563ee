import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import type { App } from '../server.ts';

/**
 * Serves a content that stays the same while the process runs: compressed for who takes that, and not again to who has
 * it. Browsers ask each time, so that nobody uses an outdated version.
 * @param headers the content type, and others
 */
export function serveAsset(app: App, path: string, content: string | Buffer, headers: AssetHeaders): void {
  const gzipped = /^font/.test(headers['content-type']) ? undefined : gzipSync(content);
  // Weak, because it is that of both forms.
  const etag = `W/"${createHash('sha256').update(content).digest('base64url')}"`;
  app.get(path, { schema: { hide: true } }, async (request, reply) => {
    reply.headers({ 'cache-control': 'no-cache', vary: 'accept-encoding', etag, ...headers });
    if (request.headers['if-none-match']?.includes(etag)) return reply.code(304).send();
    if (!gzipped || !/\bgzip\b/.test(request.headers['accept-encoding'] ?? '')) return content;
    return reply.header('content-encoding', 'gzip').send(gzipped);
  });
}

interface AssetHeaders extends Readonly<Record<string, string>> {
  readonly 'content-type': string;
}
