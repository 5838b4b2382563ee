import { createServer, type Server } from 'node:http';
import type { Registry } from 'prom-client';
import { listening } from './listening.ts';

/** Answers of the admin listener. */
export interface AdminOptions {
  readonly metrics: Registry;
  /** Reports what is still missing before traffic may come; undefined = ready. */
  readonly notReady: () => string | undefined;
}

const CONNECTIONS_MAX = 100;
/**
 * Longest silence of a connection, which otherwise takes a probe's place. Node looks every 30 s unless told otherwise.
 */
const REQUEST_TIMEOUT_MS = 5000;

/**
 * The listener for probes and scrapes, apart from the traffic's so that it can be reached by others.
 * `/livez` says that the event loop turns, and nothing else; `/readyz` whether traffic may come.
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
  // Emitted for a connection that could not be accepted, as when there are too many open files; `listen` reports other errors.
  server.on('error', () => undefined);
  return server;
}

/** Listens where ADMIN_HOST and ADMIN_PORT say; resolves with the address in use, as `http://host:port`. */
export function listenAdmin(server: Server, host: string, portNumber: number): Promise<string> {
  return listening('ADMIN_PORT', `${host}:${portNumber}`, listen(server, host, portNumber));
}

/** Listens and resolves with the address in use, as `http://host:port`. */
export function listen(server: Server, host: string, portNumber: number): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(portNumber, host, () => {
      server.off('error', reject);
      const address = server.address();
      if (address === null || typeof address === 'string') return reject(new Error('not listening on TCP'));
      resolve(
        `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`,
      );
    });
  });
}
