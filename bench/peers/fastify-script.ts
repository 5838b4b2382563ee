// Fastify with one Redis script per request, which counts the request in a window of its key.
// `fastify-script.ts <port> <keys file> <redis socket>`
import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import fastify from 'fastify';
import { Redis } from 'ioredis';

const LIMIT = 1_000_000_000;
const WINDOW_MS = 3_600_000;

const [port = '0', file = '', path = ''] = process.argv.slice(2);
const redis = new Redis({ path });
const known = new Set(
  readFileSync(file, 'utf8')
    .split('\n')
    .map((key) => hash('sha256', key, 'base64url')),
);
const script = await redis.script(
  'LOAD',
  `local used = redis.call('INCR', KEYS[1])
   if used == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
   return {used <= tonumber(ARGV[1]) and 1 or 0, math.max(0, ARGV[1] - used)}`,
);

const app = fastify();
app.post<{ Body: { key: string } }>('/v1/keys.verifyKey', async ({ body }) => {
  const id = hash('sha256', body.key, 'base64url');
  if (!known.has(id)) return { valid: false, code: 'NOT_FOUND' };
  const used = (await redis.evalsha(String(script), 1, `window:${id}`, LIMIT, WINDOW_MS)) as [number, number];
  const [valid, remaining] = [used[0] === 1, used[1]];
  return { valid, code: valid ? 'VALID' : 'RATE_LIMITED', ratelimit: { limit: LIMIT, remaining } };
});
await app.listen({ port: Number(port), host: '127.0.0.1' });
console.log(JSON.stringify({ ready: true }));
