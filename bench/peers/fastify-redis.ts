// Fastify and one Redis GET for each request, without a cache. `fastify-redis.ts <port> <keys file> <redis socket>`
import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import fastify from 'fastify';
import { Redis } from 'ioredis';

const [port = '0', file = '', path = ''] = process.argv.slice(2);
const redis = new Redis({ path });
const pipeline = redis.pipeline();
readFileSync(file, 'utf8')
  .split('\n')
  .forEach((key, i) => void pipeline.set(`peer:${hash('sha256', key, 'base64url')}`, `key_${i}`));
await pipeline.exec();

const app = fastify();
app.post<{ Body: { key: string } }>('/v1/keys.verifyKey', async ({ body }) => {
  const keyId = await redis.get(`peer:${hash('sha256', body.key, 'base64url')}`);
  return keyId
    ? { valid: true, code: 'VALID', keyId, apiId: 'bench', enabled: true, meta: {} }
    : { valid: false, code: 'NOT_FOUND' };
});
await app.listen({ port: Number(port), host: '127.0.0.1' });
console.log(JSON.stringify({ ready: true }));
