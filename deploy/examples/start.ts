// Starts the example that the first argument names, such as `express`. Its settings: REDIS_URL, and PORT (8080).
import type { AddressInfo } from 'node:net';
import { createVerifier } from 'keyfence/verifier';

const { createServer } = await import(`./${process.argv[2]}.ts`);
const verifier = createVerifier({ redis: process.env['REDIS_URL'] ?? '', apiIds: ['shop'] });
await verifier.ready();
const server = await createServer(verifier);
server.listen(Number(process.env['PORT'] ?? 8080), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ address: `http://127.0.0.1:${port}` }));
});
process.once('SIGTERM', () => {
  // Requests in flight have 10 s.
  server.close(() => void verifier.close());
  setTimeout(() => server.closeAllConnections(), 10_000).unref();
});
