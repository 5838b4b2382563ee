// better-auth's API-key plugin with its keys in Redis, behind node:http, everything optional off.
// `better-auth.mjs <port> <keys file> <redis socket>`
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { apiKey } from '@better-auth/api-key';
import { betterAuth } from 'better-auth';
import { memoryAdapter } from 'better-auth/adapters/memory';
import { Redis } from 'ioredis';

const [port = '0', file = '', path = ''] = process.argv.slice(2);
const redis = new Redis({ path });
const keys = readFileSync(file, 'utf8').split('\n');
let next = 0;
const auth = betterAuth({
  baseURL: `http://127.0.0.1:${port}`,
  secret: 'Jq3uVd0mZ7rXw1tYb8nKc5pLh2gSf9aE',
  database: memoryAdapter({ user: [], session: [], account: [], verification: [], apikey: [] }),
  secondaryStorage: {
    get: (key) => redis.get(key),
    set: async (key, value) => void (await redis.set(key, value)),
    delete: async (key) => void (await redis.del(key)),
  },
  emailAndPassword: { enabled: true },
  plugins: [
    apiKey({
      storage: 'secondary-storage',
      rateLimit: { enabled: false },
      customKeyGenerator: () => keys[next++] ?? '',
    }),
  ],
});
const { user } = await auth.api.signUpEmail({
  body: { name: 'bench', email: 'bench@example.com', password: 'not-a-secret-1' },
});
for (const _ of keys) await auth.api.createApiKey({ body: { name: 'bench', userId: user.id } });

createServer((request, response) => {
  let text = '';
  request.on('data', (chunk) => {
    text += chunk;
  });
  request.on('end', async () => {
    const { valid } = await auth.api.verifyApiKey({ body: { key: JSON.parse(text).key } });
    const body = JSON.stringify({ valid });
    response.writeHead(valid ? 200 : 500, {
      'content-type': 'application/json',
      'content-length': body.length,
    });
    response.end(body);
  });
}).listen(Number(port), '127.0.0.1', () => console.log(JSON.stringify({ ready: true })));
