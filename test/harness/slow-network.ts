import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/** A network in front of a port, in which bytes, FINs and resets take their time in each direction. */
export class SlowNetwork {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(port: number, delayMs: number) {
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
      const server = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
      for (const [from, to] of [
        [client, server],
        [server, client],
      ] as const) {
        this.#sockets.add(from);
        from.on('data', (chunk) => setTimeout(() => to.write(chunk), delayMs));
        from.on('end', () => setTimeout(() => to.end(), delayMs));
        from.on('error', () => setTimeout(() => to.resetAndDestroy(), delayMs));
        from.on('close', () => this.#sockets.delete(from));
      }
    });
  }

  static async before(port: number, delayMs: number): Promise<SlowNetwork> {
    const network = new SlowNetwork(port, delayMs);
    await new Promise<void>((resolve) => network.#server.listen(0, '127.0.0.1', resolve));
    return network;
  }

  get address(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}
