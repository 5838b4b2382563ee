import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { ApiError, type ErrorCode } from '#shared/contract/errors.ts';
import { listen } from '#shared/process/admin.ts';
import { listenUnix } from '../node-internals/unix-socket.ts';
import type { HttpLimits } from './http-settings.ts';
import { OpenRequests, type RequestOptions } from './open-requests.ts';
import { type Certificate, createHttpServer, Response } from './tls.ts';

/** A listener of this process. */
export interface Listener {
  /** Resolves with the address in use, as `http://host:port`, or `https:`. Port 0 = any free port. */
  /** @param isShared true if other processes may listen at the same port */
  listen(host: string, port: number, isShared?: boolean): Promise<string>;
  /**
   * Listens on a Unix socket that every local user may use. Replaces a socket on which no process listens.
   */
  listenUnix(path: string): Promise<string>;
  /** From now on every answer says `Connection: close`. */
  drain(): void;
  /** Accepts no more connections, and goes on with those that are open. Resolves when every one is closed. */
  stopListening(): Promise<void>;
  /**
   * Accepts no more connections, and answers with `Connection: close` the requests that have arrived. Cuts
   * connections that are still open after `graceMs`. Resolves when every connection is closed.
   */
  close(graceMs: number): Promise<void>;
  readonly requestsInFlight: number;
}

/** A lane, which answers some requests before Node's server sees them. */
interface ListenerLane {
  /** Requests that the lane is receiving or answering. */
  readonly inFlight: number;
  /** True = the lane takes no new requests. */
  closing: boolean;
  /** Ends the connections without an open request. */
  endIdle(): void;
}

/** Behaviour and limits of a listener. */
export interface ListenerOptions extends RequestOptions {
  readonly limits: HttpLimits;
  /** If present, the listener speaks HTTPS. */
  readonly certificate?: Certificate | undefined;
  /**
   * True if a client that ends its side thereby aborts its request. Otherwise the request is still answered.
   */
  readonly endIsAbort?: boolean;
  /**
   * Returns true for requests that may take over their connection; `serve` then gets them with `upgrade`
   * true. Default: none.
   */
  readonly mayUpgrade?: (request: IncomingMessage) => boolean;
  /**
   * Creates a lane in front of Node's server.
   * @param tooSlow answers a connection whose request did not arrive in time, and closes it
   */
  readonly lane?: (server: Server, tooSlow: (socket: Duplex, requestId?: string) => void) => ListenerLane;
}

/** Creates a listener on `node:http`, with every rule that is independent of the handlers. */
export function createListener(options: ListenerOptions): Listener {
  const { limits, certificate } = options;
  const inFlight = () => requests.size + (lane?.inFlight ?? 0);
  const requests = new OpenRequests(options, () => inFlight() > limits.REQUESTS_IN_FLIGHT_MAX);
  const sockets = new Set<Socket>();
  let removeSocket: (() => void) | undefined;
  const server = serverOf(options, requests);
  const tooSlow = (socket: Duplex, requestId?: string) =>
    requests.refuse(socket, new ApiError(...BROKEN_REQUESTS.ERR_HTTP_REQUEST_TIMEOUT), requestId);
  const lane = options.lane?.(server, tooSlow);
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });

  const drain = () => {
    requests.drain();
    if (lane) lane.closing = true;
  };

  let closed: Promise<void> | undefined;
  // Node's HTTP server would cut idle connections, on which a request may be on its way.
  const stopListening = () => {
    closed ??= new Promise((resolve) => NetServer.prototype.close.call(server, () => resolve()));
    return closed;
  };

  return {
    get requestsInFlight() {
      return inFlight();
    },
    stopListening,
    async listen(host, port, isShared) {
      const address = await listen(server, host, port, isShared);
      return certificate === undefined ? address : address.replace('http:', 'https:');
    },
    async listenUnix(path) {
      removeSocket = await listenUnix(server, path);
      return path;
    },
    drain,
    async close(graceMs) {
      drain();
      // Requests that have already reached this machine are read in the next turns of the event loop, and
      // answered.
      for (let turn = 0; turn < 2; turn++) await new Promise(setImmediate);
      removeSocket?.();
      const allClosed = stopListening();
      server.close();
      lane?.endIdle();
      const timer = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, graceMs);
      await allClosed;
      clearTimeout(timer);
    },
  };
}

/** Creates Node's server with the project's limits and refusals. Passes the requests on to `requests`. */
function serverOf(options: ListenerOptions, requests: OpenRequests): Server {
  const { limits, log, certificate } = options;
  const serve = (request: IncomingMessage, response: ServerResponse) => requests.serve(request, response);
  const server = createHttpServer(
    {
      maxHeaderSize: limits.HEADER_BYTES_MAX,
      headersTimeout: Math.min(limits.HEADERS_TIMEOUT_MS, limits.REQUEST_TIMEOUT_MS || Infinity),
      requestTimeout: limits.REQUEST_TIMEOUT_MS,
      keepAliveTimeout: limits.KEEP_ALIVE_TIMEOUT_MS,
      connectionsCheckingInterval: Math.min(1000, limits.HEADERS_TIMEOUT_MS / 2),
      insecureHTTPParser: false,
      // Node would answer without the contract's body; see `OpenRequests`.
      requireHostHeader: false,
      // An upgrade behind an unanswered request is served like any other request, because its answer must
      // come after the earlier one.
      shouldUpgradeCallback: (request) =>
        requests.isIdle(request.socket) && options.mayUpgrade?.(request) === true,
    },
    certificate,
    serve,
  );
  // Emitted if a connection could not be accepted, for example because too many files are open.
  server.on('error', (err) => server.listening && log.error({ err }, 'a connection was not accepted'));
  server.maxConnections = limits.CONNECTIONS_MAX;
  server.timeout = limits.STALL_TIMEOUT_MS;
  // HEADER_BYTES_MAX bounds the headers instead, and a lane does not count them either.
  server.maxHeadersCount = 0;
  Object.assign(server, { httpAllowHalfOpen: !options.endIsAbort });
  server.on('checkContinue', serve);
  server.on('checkExpectation', serve);
  server.on('connect', (_request, socket) => {
    socket.on('error', () => socket.destroy());
    requests.refuse(socket, new ApiError('NOT_FOUND', 'no such path'));
  });
  server.on('upgrade', (request, socket, head) => serve(request, responseOn(request, socket, head)));
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const { code = '' } = error;
    const isHttp = code.startsWith('HPE_') || code in BROKEN_REQUESTS;
    // Node reports the fault at each further read. The refused connection stays until the client has read the
    // refusal: closing it over what still arrives would reset it.
    if (isHttp && socket.writableEnded) return;
    if (!isHttp || !socket.writable) return socket.destroy();
    const broken: Readonly<Record<string, readonly [ErrorCode, string]>> = BROKEN_REQUESTS;
    const [errorCode, message] = broken[code] ?? ['BAD_REQUEST', 'the request is not valid HTTP'];
    requests.refuse(socket, new ApiError(errorCode, message));
  });
  return server;
}

/** The project's errors for requests that Node itself refuses. */
const BROKEN_REQUESTS = {
  HPE_HEADER_OVERFLOW: ['HEADERS_TOO_LARGE', 'headers: over the limit'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['PAYLOAD_TOO_LARGE', 'body: chunk extensions over the limit'],
  ERR_HTTP_REQUEST_TIMEOUT: ['REQUEST_TIMEOUT', 'the request did not arrive in time'],
} as const satisfies Record<string, readonly [ErrorCode, string]>;

/**
 * Creates a response for a request that Node has released. If the request is refused, the client thus learns
 * why.
 */
function responseOn(request: IncomingMessage, socket: Duplex, head: Buffer): ServerResponse {
  socket.unshift(head);
  const response = new Response(request);
  response.shouldKeepAlive = false;
  response.assignSocket(request.socket);
  socket.on('drain', () => response.emit('drain')).on('error', () => socket.destroy());
  response.once('finish', () => request.socket.destroySoon());
  return response;
}
