import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import type { ConnectionInjector } from '@grpc/grpc-js';
import type { Logger } from '#shared/process/log.ts';
import type { HttpLimits } from '../http/server.ts';
import { type Certificate, useCertificate } from '../http/tls.ts';

/**
 * The shortest beginning of a client: the preface of HTTP/2, 24 bytes, and the header of its SETTINGS frame,
 * 9.
 */
const BEGINNING_BYTES = 33;

/**
 * The connections of a gRPC server, accepted here, and with TLS also decrypted here. gRPC's own listener sets
 * no limit to their number, keeps silent connections for ever, and waits two minutes for a handshake.
 */
export class Connections {
  readonly #server: Server;
  readonly #open = new Set<Socket>();
  #closed: Promise<void> | undefined;

  constructor(
    grpc: Pick<ConnectionInjector, 'injectConnection'>,
    limits: Pick<HttpLimits, 'CONNECTIONS_MAX' | 'HEADERS_TIMEOUT_MS'>,
    log: Pick<Logger, 'error'>,
    certificate: Certificate | undefined,
  ) {
    const accept = (socket: Socket) => {
      this.#open.add(socket);
      // After the beginning, gRPC's limit for idle sessions applies.
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
    };
    const handshakeTimeout = limits.HEADERS_TIMEOUT_MS;
    const tls =
      certificate &&
      createTlsServer(
        { noDelay: true, handshakeTimeout, ALPNProtocols: ['h2'], requestCert: certificate.asksClients },
        accept,
      );
    if (tls) {
      useCertificate(tls, certificate);
      // Node does not close the socket after a failed or late handshake.
      tls.on('tlsClientError', (_error, socket) => socket.destroy());
      // Connections that are still in the handshake must be cut, too.
      tls.on('connection', (socket: Socket) => {
        this.#open.add(socket);
        socket.on('error', () => socket.destroy()).once('close', () => this.#open.delete(socket));
      });
    }
    this.#server = tls ?? createServer({ noDelay: true }, accept);
    this.#server.maxConnections = limits.CONNECTIONS_MAX;
    this.#server.on(
      'error',
      (err) => this.#server.listening && log.error({ err }, 'a connection was not accepted'),
    );
  }

  /** Resolves with the address in use, as `host:port`. */
  listen(host: string, port: number, isShared: boolean): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ host, port, reusePort: isShared }, () => {
        this.#server.off('error', reject);
        const address = this.#server.address() as AddressInfo;
        resolve(`${host.includes(':') ? `[${host}]` : host}:${address.port}`);
      });
    });
  }

  /** Accepts no more connections. Resolves when all are closed. */
  stopListening(): Promise<void> {
    this.#closed ??= new Promise((resolve) => this.#server.close(() => resolve()));
    return this.#closed;
  }

  /** Accepts no more connections, ends those that have sent nothing, and resolves when all are closed. */
  close(): Promise<void> {
    for (const socket of this.#open) if (socket.bytesRead === 0) socket.destroy();
    return this.stopListening();
  }

  /** Cuts all open connections, or only the one from `peer`, as `host:port`. */
  cut(peer?: string): void {
    for (const socket of this.#open) {
      if (peer === undefined || peer === `${socket.remoteAddress}:${socket.remotePort}`) socket.destroy();
    }
  }
}
