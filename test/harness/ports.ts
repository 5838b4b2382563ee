import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below what systems give to outgoing connections (Linux from 32768 on), which would take a port before its server does. */
const PORTS = { first: 10_000, last: 21_999 } as const;
/** From the port of a Cluster's node to that of its bus. */
const BUS = 10_000;

/** A TCP port of 127.0.0.1 that nobody uses just now, and nor the one that a Redis Cluster would use beside it. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(PORTS.first, PORTS.last + 1);
    if ((await isFree(port)) && (await isFree(port + BUS))) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening');
  } catch {
    return false; // in use, or not for us
  }
  server.close();
  await once(server, 'close');
  return true;
}
