// Fastify with one Redis GET of the key's record per request, without a cache. `fastify-redis.ts <port> <keys
// file> <redis socket>`
import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import fastify from 'fastify';
import { Redis } from 'ioredis';

const [port = '0', file = '', path = ''] = process.argv.slice(2);
const redis = new Redis({ path });
const pipeline = redis.pipeline();
readFileSync(file, 'utf8')
  .split('\n')
  .forEach((key, i) => {
    const record = { keyId: `key_${i}`, apiId: 'bench', enabled: true, expires: 0, meta: {} };
    pipeline.set(`peer:${hash('sha256', key, 'base64url')}`, JSON.stringify(record));
  });
await pipeline.exec();

const app = fastify();
app.post<{ Body: { key: string } }>('/v1/keys.verifyKey', async ({ body }) => {
  const found = await redis.get(`peer:${hash('sha256', body.key, 'base64url')}`);
  if (found === null) return { valid: false, code: 'NOT_FOUND' };
  const { expires, ...key } = JSON.parse(found) as { enabled: boolean; expires: number };
  const code = !key.enabled ? 'DISABLED' : expires !== 0 && expires <= Date.now() ? 'EXPIRED' : 'VALID';
  return { valid: code === 'VALID', code, ...key };
});
await app.listen({ port: Number(port), host: '127.0.0.1' });
console.log(JSON.stringify({ ready: true }));
