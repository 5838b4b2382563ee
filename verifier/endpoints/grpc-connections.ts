import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import type { ConnectionInjector } from '@grpc/grpc-js';
import type { Logger } from '#shared/process/log.ts';
import type { HttpLimits } from '../http/limits.ts';

/** The least that a client says to begin with: the preface of HTTP/2, 24 bytes, and the head of its SETTINGS, 9. */
const BEGINNING_BYTES = 33;

/** The connections of a gRPC server, accepted here because gRPC's own listener takes any number, and silent ones for ever. */
export class Connections {
  readonly #server: Server;
  readonly #open = new Set<Socket>();

  constructor(
    grpc: Pick<ConnectionInjector, 'injectConnection'>,
    limits: Pick<HttpLimits, 'CONNECTIONS_MAX' | 'HEADERS_TIMEOUT_MS'>,
    log: Pick<Logger, 'error'>,
  ) {
    this.#server = createServer({ noDelay: true }, (socket) => {
      this.#open.add(socket);
      // Beyond that a handshake has the limit of Node's TLS, and a session that of gRPC for idle ones.
      const beginning = setTimeout(() => {
        if (socket.bytesRead < BEGINNING_BYTES) socket.destroy();
      }, limits.HEADERS_TIMEOUT_MS).unref();
      socket
        .on('error', () => socket.destroy())
        .once('close', () => {
          clearTimeout(beginning);
          this.#open.delete(socket);
        });
      grpc.injectConnection(socket);
    });
    this.#server.maxConnections = limits.CONNECTIONS_MAX;
    this.#server.on(
      'error',
      (err) => this.#server.listening && log.error({ err }, 'a connection was not accepted'),
    );
  }

  /** Resolves with the address in use, as `host:port`. */
  listen(host: string, port: number): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => {
        this.#server.off('error', reject);
        const bound = this.#server.address() as AddressInfo;
        resolve(`${host.includes(':') ? `[${host}]` : host}:${bound.port}`);
      });
    });
  }

  /** Accepts no more, ends those on which nothing was said, and resolves when all are closed. */
  close(): Promise<void> {
    for (const socket of this.#open) if (socket.bytesRead === 0) socket.destroy();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  /** Ends those that are still open. */
  cut(): void {
    for (const socket of this.#open) socket.destroy();
  }
}
