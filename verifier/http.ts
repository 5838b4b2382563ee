import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { listen } from '#shared/admin.ts';
import { type ConfigOf, flag, integer } from '#shared/config.ts';
import { ApiError, ERROR_DOCS_PATH, type ErrorCode, errorDocsHtml, unavailable } from '#shared/errors.ts';
import type { Logger } from '#shared/log.ts';
import { newRequestId, requestIdFrom } from '#shared/request-id.ts';
import { answer, answerError, LINGER_MS } from './answer.ts';
import { type AuthzSettings, authzRoutes } from './authz.ts';
import { FastLane } from './fast-lane.ts';
import { rawJson } from './raw-answer.ts';
import { createRouter, type Routes } from './routes.ts';
import { listenUnix } from './unix-socket.ts';
import { type Answers, verifyKeyRoute } from './verify-key.ts';

export const httpSettings = {
  BODY_BYTES_MAX: integer(1024, 1_048_576, 'bytes', 65_536, 'Largest request body'),
  HEADER_BYTES_MAX: integer(4096, 65_536, 'bytes', 16_384, 'Largest request head'),
  FAST_LANE: flag(true, "Whether common requests are answered without Node's HTTP server, twice as fast"),
  HEADERS_TIMEOUT_MS: integer(
    1000,
    300_000,
    'ms',
    10_000,
    'The longest that receiving a request head may take',
  ),
  REQUEST_TIMEOUT_MS: integer(1000, 300_000, 'ms', 15_000, 'The longest that receiving a request may take'),
  KEEP_ALIVE_TIMEOUT_MS: integer(
    1000,
    600_000,
    'ms',
    90_000,
    "How long an idle connection stays open; above the gateway's own",
  ),
  STALL_TIMEOUT_MS: integer(
    1000,
    600_000,
    'ms',
    120_000,
    'How long a connection on which nothing moves stays open while a request is being answered; above any wait for the control plane',
  ),
  CONNECTIONS_MAX: integer(1, 100_000, 'connections', 10_000, 'Connections at once; more are closed at once'),
  REQUESTS_IN_FLIGHT_MAX: integer(
    1,
    1_000_000,
    'requests',
    10_000,
    'Requests being received or looked up at once; more are refused with 503',
  ),
};

/** The values of `httpSettings`. */
export type HttpLimits = ConfigOf<typeof httpSettings>;

/** The verifier's listener. */
export interface VerifierServer {
  /** Resolves with the address in use, as `http://host:port`. Port 0 = any free one. */
  listen(host: string, port: number): Promise<string>;
  /** Listens on a Unix socket that every local user may use, replacing one that nobody listens on. */
  listenUnix(path: string): Promise<string>;
  /**
   * Accepts no more connections, answers what has arrived with `Connection: close`, and resolves when every
   * connection is closed: those still open after `graceMs` are cut.
   */
  close(graceMs: number): Promise<void>;
  readonly requestsInFlight: number;
  /** Requests answered by the fast lane, and connections it gave to Node's server. */
  readonly lane: { readonly answered: number; readonly handedOver: number };
}

/**
 * The HTTP contract of the verifier on `node:http`.
 * @param options.authz undefined = gateways are not answered
 * @param options.routes more than verifyKey, the error page and what gateways ask
 */
export function createVerifierServer(options: {
  answers: Answers;
  limits: HttpLimits;
  log: Pick<Logger, 'error'>;
  authz?: AuthzSettings;
  routes?: Partial<Routes>;
}): VerifierServer {
  const { answers, limits, log, authz, routes } = options;
  const route = createRouter({
    exact: {
      '/v1/keys.verifyKey': { POST: verifyKeyRoute(answers, limits.BODY_BYTES_MAX) },
      [ERROR_DOCS_PATH]: {
        GET: (_request, response) => answer(response, 200, 'text/html; charset=utf-8', errorDocsHtml()),
      },
      '/openapi.json': { GET: (_request, response) => answer(response, 200, 'application/json', OPENAPI) },
      ...routes?.exact,
    },
    below: [...(authz ? authzRoutes(answers, authz) : []), ...(routes?.below ?? [])],
  });
  /** Requests not yet answered, oldest first. */
  const open = new Set<ServerResponse>();
  /** The last request of each connection. */
  const latest = new WeakMap<Duplex, ServerResponse>();
  let closing = false;

  const serve = (request: IncomingMessage, response: ServerResponse) => {
    const requestId = requestIdFrom(request.headers['x-request-id']);
    response.setHeader('X-Request-Id', requestId).setHeader('Cache-Control', 'no-store');
    if (closing) response.shouldKeepAlive = false;
    open.add(response);
    latest.set(request.socket, response);
    response.once('close', () => open.delete(response));
    const fail = (error: unknown) => {
      if (!(error instanceof ApiError)) log.error({ requestId, err: error }, 'a bug');
      if (response.headersSent) return;
      const bug = new ApiError('INTERNAL_SERVER_ERROR', 'something went wrong on our side');
      answerError(response, error instanceof ApiError ? error : bug, requestId);
    };
    try {
      if (inFlight() > limits.REQUESTS_IN_FLIGHT_MAX) throw unavailable('too many requests at once');
      judgeHead(request);
      route(request, response, requestId)?.catch(fail);
    } catch (error) {
      fail(error);
    }
  };

  /** Answers what never became a request, after all that were sent before it on the same connection. */
  const refuse = (socket: Duplex, error: ApiError) => {
    const last = latest.get(socket);
    if (last !== undefined && !last.req.complete) {
      if (last.writableFinished) return socket.destroy();
      last.shouldKeepAlive = false;
      const requestId = String(last.getHeader('x-request-id'));
      if (!last.headersSent) answerError(last, error, requestId);
      return last.end();
    }
    const write = () => {
      if (!socket.writable) return socket.destroy();
      socket.end(rawJson.refused(error, newRequestId(), undefined));
      setTimeout(() => socket.destroy(), LINGER_MS).unref();
    };
    if (last === undefined || !open.has(last)) return write();
    // Before Node's own listener, which ends the connection where the client has ended its side.
    last.prependOnceListener('finish', () => {
      if (last.shouldKeepAlive) write();
    });
  };

  const server = createServer(
    {
      maxHeaderSize: limits.HEADER_BYTES_MAX,
      headersTimeout: Math.min(limits.HEADERS_TIMEOUT_MS, limits.REQUEST_TIMEOUT_MS),
      requestTimeout: limits.REQUEST_TIMEOUT_MS,
      keepAliveTimeout: limits.KEEP_ALIVE_TIMEOUT_MS,
      connectionsCheckingInterval: Math.min(1000, limits.HEADERS_TIMEOUT_MS / 2),
      insecureHTTPParser: false,
      // Node would answer without our body; see `judgeHead`.
      requireHostHeader: false,
    },
    serve,
  );
  server.maxConnections = limits.CONNECTIONS_MAX;
  server.timeout = limits.STALL_TIMEOUT_MS;
  // A client may end its side once it has asked; what it asked is answered all the same.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.on('checkContinue', serve);
  server.on('checkExpectation', serve);
  server.on('connect', (_request, socket) => {
    socket.on('error', () => socket.destroy());
    refuse(socket, new ApiError('NOT_FOUND', 'no such path'));
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (error.code === 'ECONNRESET' || !socket.writable) return socket.destroy();
    const broken: Readonly<Record<string, readonly [ErrorCode, string]>> = BROKEN;
    const [code, message] = broken[error.code ?? ''] ?? ['BAD_REQUEST', 'the request is not valid HTTP'];
    refuse(socket, new ApiError(code, message));
  });
  const tooSlow = (socket: Duplex) => refuse(socket, new ApiError(...BROKEN.ERR_HTTP_REQUEST_TIMEOUT));
  const lane = limits.FAST_LANE ? new FastLane(server, { answers, limits, authz, tooSlow }) : undefined;
  const inFlight = () => open.size + (lane?.lookingUp ?? 0);

  return {
    lane: lane?.counts ?? { answered: 0, handedOver: 0 },
    get requestsInFlight() {
      return inFlight();
    },
    listen: (host, port) => listen(server, host, port),
    listenUnix: (path) => listenUnix(server, path),
    async close(graceMs) {
      closing = true;
      if (lane) lane.closing = true;
      for (const response of open) {
        if (latest.get(response.req.socket) === response) response.shouldKeepAlive = false;
      }
      // What reached this machine before is read in the next turns of the event loop, and answered.
      for (let turn = 0; turn < 2; turn++) await new Promise(setImmediate);
      const closed = new Promise((resolve) => server.close(resolve));
      lane?.endIdle();
      const timer = setTimeout(() => {
        server.closeAllConnections();
        lane?.cut();
      }, graceMs);
      await closed;
      clearTimeout(timer);
    },
  };
}

/** Written by `npm run docs`. */
const OPENAPI = readFileSync(new URL('./openapi.json', import.meta.url), 'utf8');

/** What Node refuses by itself, in the contract's words. */
const BROKEN = {
  HPE_HEADER_OVERFLOW: ['HEADERS_TOO_LARGE', 'headers: over the limit'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['PAYLOAD_TOO_LARGE', 'body: chunk extensions over the limit'],
  ERR_HTTP_REQUEST_TIMEOUT: ['REQUEST_TIMEOUT', 'the request did not arrive in time'],
} as const satisfies Record<string, readonly [ErrorCode, string]>;

/** What HTTP/1.1 asks of every request, whatever its path (RFC 9110 §10.1.1, RFC 9112 §3.2). */
function judgeHead({ headers, httpVersion }: IncomingMessage): void {
  if (httpVersion !== '1.1') return;
  if (headers.host === undefined) throw new ApiError('BAD_REQUEST', 'Host: required');
  if (headers.expect !== undefined && headers.expect.toLowerCase() !== '100-continue') {
    throw new ApiError('EXPECTATION_FAILED', 'Expect: only 100-continue is understood');
  }
}
