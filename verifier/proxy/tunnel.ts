import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/**
 * Passes bytes between two connections, at the pace of the slower, until both are closed.
 * @param idleMs both are cut when nothing moved for so long; 0 = never
 */
export async function join(client: Socket, upstream: Duplex, idleMs: number): Promise<void> {
  const [clientEnd, upstreamEnd] = [client, upstream].map((socket, i, both) => {
    const peer = both[1 - i];
    socket.on('error', () => socket.destroy());
    return new Promise<void>((resolve) => {
      socket.once('close', () => {
        // Deliver the bytes that it sent before it closed.
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
