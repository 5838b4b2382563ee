import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/**
 * Passes bytes between two connections until both are closed, at the pace of the slower one.
 * @param idleMs both are cut after this time without data; 0 = never
 */
export async function join(client: Socket, upstream: Duplex, idleMs: number): Promise<void> {
  const [clientEnd, upstreamEnd] = [client, upstream].map((socket, i, both) => {
    const peer = both[1 - i];
    socket.on('error', () => socket.destroy());
    return new Promise<void>((resolve) => {
      socket.once('close', () => {
        // Delivers the bytes that this socket sent before it closed.
        if (peer instanceof Socket) peer.destroySoon();
        else peer?.destroy();
        resolve();
      });
    });
  });
  client.setTimeout(idleMs, () => client.destroy());
  client.pipe(upstream).pipe(client);
  await Promise.all([clientEnd, upstreamEnd]);
}
