import { createServer } from 'node:net';

/** A Cluster's bus is at its port + 10000. */
const PORT_MAX = 55_000;

/** A TCP port of 127.0.0.1 that nobody uses just now. */
export async function freePort(): Promise<number> {
  for (;;) {
    const server = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as { port: number };
    await new Promise((resolve) => server.close(resolve));
    if (port < PORT_MAX) return port;
  }
}
