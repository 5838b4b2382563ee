// A minimal verifier on node:http: JSON body (for GET: a header), SHA-256, LRU, JSON answer. `minimal-http.ts
// <port> <keys file>`
import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { LRUCache } from 'lru-cache';

const [port = '0', file = ''] = process.argv.slice(2);
const cache = new LRUCache<string, { keyId: string; enabled: boolean }>({ max: 1_000_000 });
readFileSync(file, 'utf8')
  .split('\n')
  .forEach(
    (key, i) => void cache.set(hash('sha256', key, 'base64url'), { keyId: `key_${i}`, enabled: true }),
  );

const server = createServer({ optimizeEmptyRequests: true }, (request, response) => {
  if (request.method === 'GET') {
    const entry = cache.get(hash('sha256', request.headers.authorization?.slice(7) ?? '', 'base64url'));
    response.writeHead(entry?.enabled ? 200 : 401, { 'x-key-id': entry?.keyId ?? '', 'content-length': 0 });
    response.end();
    return;
  }
  let text = '';
  request.on('data', (chunk) => {
    text += chunk;
  });
  request.on('end', () => {
    const { key } = JSON.parse(text) as { key: string };
    const entry = cache.get(hash('sha256', key, 'base64url'));
    const body = JSON.stringify(
      entry
        ? { valid: entry.enabled, code: 'VALID', keyId: entry.keyId, apiId: 'bench', enabled: true, meta: {} }
        : { valid: false, code: 'NOT_FOUND' },
    );
    response.writeHead(200, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    });
    response.end(body);
  });
});
server.listen(Number(port), '127.0.0.1', () => console.log(JSON.stringify({ ready: true })));
