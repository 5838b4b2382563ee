// An API on Fastify that answers only callers with a key. Its settings: REDIS_URL, and PORT (8080).
import Fastify from 'fastify';
import { keyfence } from 'keyfence/fastify';
import { createVerifier } from 'keyfence/verifier';

const verifier = createVerifier({ redis: process.env['REDIS_URL'] ?? '', apiIds: ['shop'] });
const app = Fastify();
// Register the guard before plugins with routes: each instance inherits the guards that exist when it is
// created.
await app.register(keyfence, { verifier, apiId: 'shop' });
app.get('/health', { config: { apiKey: false } }, () => 'ok');
app.get('/orders', ({ apiKey }) => ({ orders: [], of: apiKey?.keyId }));

await verifier.ready();
const address = await app.listen({ port: Number(process.env['PORT'] ?? 8080) });
console.log(JSON.stringify({ address }));
process.once('SIGTERM', async () => {
  await app.close();
  await verifier.close();
});
