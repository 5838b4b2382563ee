// Keys in Redis, and verdicts in memory for a while: `revocable.ts <port> <redis socket> <cache ms, 0 = none>`. POST
// /create makes a key, POST /revoke deletes one, GET /check answers 200 or 401.
import { hash, randomBytes } from 'node:crypto';
import fastify from 'fastify';
import { Redis } from 'ioredis';
import { LRUCache } from 'lru-cache';

const [port = '0', path = '', cacheMs = '0'] = process.argv.slice(2);
const redis = new Redis({ path });
const cache =
  Number(cacheMs) > 0 ? new LRUCache<string, boolean>({ max: 10_000, ttl: Number(cacheMs) }) : undefined;
const nameOf = (key: string) => `peer:${hash('sha256', key, 'base64url')}`;

const app = fastify();
app.post('/create', async () => {
  const key = randomBytes(16).toString('base64url');
  await redis.set(nameOf(key), '{"enabled":true}');
  return { key };
});
app.post<{ Body: { key: string } }>('/revoke', async ({ body }) => {
  await redis.del(nameOf(body.key));
  return { deleted: true };
});
app.get('/check', async ({ headers }, reply) => {
  const key = String(headers['x-api-key']);
  const valid = cache?.get(key) ?? (await redis.get(nameOf(key))) !== null;
  cache?.set(key, valid, { noUpdateTTL: true });
  return reply.code(valid ? 200 : 401).send({ valid });
});
await app.listen({ port: Number(port), host: '127.0.0.1' });
console.log(JSON.stringify({ ready: true }));
