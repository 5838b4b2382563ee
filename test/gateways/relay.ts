import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** Stands before the verifier, counts who connects, and can make it slow. */
export class Relay {
  connections = 0;
  /** Time by which what the verifier says comes later, milliseconds. */
  delayMs = 0;
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer();

  /** @param host `host:port` of the verifier */
  static async start(host: string): Promise<Relay> {
    const relay = new Relay();
    relay.#server.on('connection', (client) => {
      relay.connections++;
      const { hostname, port } = new URL(`http://${host}`);
      const verifier = connect(Number(port), hostname);
      for (const [from, to] of [
        [client, verifier],
        [verifier, client],
      ] as const) {
        relay.#sockets.add(from);
        from.on('error', () => to.destroy()).on('close', () => to.destroy());
      }
      client.pipe(verifier);
      verifier.on('data', (chunk: Buffer) => {
        if (relay.delayMs === 0) client.write(chunk);
        else setTimeout(() => client.write(chunk), relay.delayMs);
      });
    });
    await new Promise<void>((resolve) => relay.#server.listen(0, '127.0.0.1', resolve));
    return relay;
  }

  get host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
