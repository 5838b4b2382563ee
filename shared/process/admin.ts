import { createServer, type Server } from 'node:http';
import type { Registry } from 'prom-client';
import { listening } from './listening.ts';

/** The data that the admin listener serves. */
export interface AdminOptions {
  readonly metrics: Pick<Registry, 'metrics' | 'contentType'>;
  /** Returns the reason why the process is not ready; undefined = ready. */
  readonly notReady: () => string | undefined;
}

const CONNECTIONS_MAX = 100;
/**
 * Longest silence of a connection, which would otherwise take a probe's place. By default Node checks only
 * every 30 s.
 */
const REQUEST_TIMEOUT_MS = 5000;

/**
 * Creates the listener for probes and scrapes. It is separate from the traffic's listener so that other
 * clients can reach it. `/livez` says only that the event loop is running; `/readyz` says whether traffic may
 * come.
 */
export function createAdminServer({ metrics, notReady }: AdminOptions): Server {
  const bounds = {
    maxHeaderSize: 8192,
    requestTimeout: REQUEST_TIMEOUT_MS,
    connectionsCheckingInterval: 1000,
  };
  const server = createServer(bounds, (request, response) => {
    const path = request.url?.split('?')[0];
    const answer = (status: number, body: string, type = 'text/plain; charset=utf-8') => {
      response.writeHead(status, {
        'content-type': type,
        'content-length': Buffer.byteLength(body),
        'cache-control': 'no-store',
      });
      response.end(request.method === 'HEAD' ? undefined : body);
    };
    if (request.method !== 'GET' && request.method !== 'HEAD') return answer(405, 'GET only\n');
    if (path === '/livez') return answer(200, 'ok\n');
    if (path === '/readyz') {
      const missing = notReady();
      return missing === undefined ? answer(200, 'ok\n') : answer(503, `${missing}\n`);
    }
    if (path !== '/metrics') return answer(404, 'try /livez, /readyz or /metrics\n');
    metrics.metrics().then(
      (body) => answer(200, body, metrics.contentType),
      () => answer(500, 'the metrics could not be read\n'),
    );
  });
  server.maxConnections = CONNECTIONS_MAX;
  // Emitted if a connection could not be accepted, for example because too many files are open. `listen`
  // reports all other errors.
  server.on('error', () => undefined);
  return server;
}

/** Listens at ADMIN_HOST and ADMIN_PORT. Resolves with the address in use, as `http://host:port`. */
export function listenAdmin(server: Server, host: string, portNumber: number): Promise<string> {
  return listening('ADMIN_PORT', `${host}:${portNumber}`, listen(server, host, portNumber));
}

/**
 * Listens. Resolves with the address in use, as `http://host:port`.
 * @param isShared true if other processes of this user may listen there as well
 */
export function listen(server: Server, host: string, portNumber: number, isShared = false): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host, port: portNumber, reusePort: isShared }, () => {
      server.off('error', reject);
      const address = server.address();
      if (address === null || typeof address === 'string') return reject(new Error('not listening on TCP'));
      resolve(
        `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`,
      );
    });
  });
}
