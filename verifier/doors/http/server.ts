import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { listen } from '#shared/process/admin.ts';
import { type ConfigOf, flag, integer } from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import { SlotList } from '#shared/process/slot-list.ts';
import { ApiError, type ErrorCode, toApiError, UNHANDLED, unavailable } from '#shared/rules/errors.ts';
import { newRequestId, requestIdFrom, traceIdOf } from '#shared/rules/request-id.ts';
import { DelegatedRequest } from '../node-internals/delegated-request.ts';
import { allowHalfOpen, responseOn, stopAccepting } from '../node-internals/http-server.ts';
import { listenUnix } from '../node-internals/unix-socket.ts';
import { answerError, LINGER_MS, refusalAsJson, refusalAsProblem } from './respond.ts';
import { type Certificate, createHttpServer } from './tls.ts';

export const httpSettings = {
  HEADER_BYTES_MAX: integer(4096, 65_536, 'bytes', 16_384).help(
    'Maximum size of the head of a request, and of the head of a response that the verifier passes on',
  ),
  FAST_LANE: flag(true).help(
    "If true, the verifier answers common requests without Node's HTTP server, at half the cost",
  ),
  KEEP_ALIVE_TIMEOUT_MS: integer(1000, 3_600_000, 'ms', 90_000).help(
    'Time after which the verifier closes an idle connection. Set it longer than that of your gateway',
  ),
  CONNECTIONS_MAX: integer(1, 100_000, 'connections', 10_000).help(
    'Maximum number of connections at each port or socket. The verifier closes further connections immediately',
  ),
};

/** Limits that suit everybody. Only tests replace them. */
export const httpLimits = {
  /** Largest request body. */
  BODY_BYTES_MAX: 65_536,
  /**
   * Memory for partial requests, of all connections of a listener together. Each takes at most BODY_BYTES_MAX
   * and a head of 4 KiB. A connection that finds no room is handed over to Node's HTTP server.
   */
  FAST_LANE_WAIT_BYTES_MAX: 16_777_216,
  /** Longest time for receiving a request head. */
  HEADERS_TIMEOUT_MS: 10_000,
  /** Maximum time to receive a whole request. */
  REQUEST_TIMEOUT_MS: 15_000,
  /**
   * Time without any byte after which the verifier cuts a connection whose request is not answered yet: longer than any
   * wait for the control plane.
   */
  STALL_TIMEOUT_MS: 120_000,
  /** Most requests that are being received or looked up at once; further ones get 503. */
  REQUESTS_IN_FLIGHT_MAX: 10_000,
};

/** The values of `httpSettings`, and the limits. */
export type HttpLimits = ConfigOf<typeof httpSettings> & typeof httpLimits;

/**
 * A function that answers one request. If it throws or rejects, the client gets the error in the contract's
 * form: an ApiError as such, anything else as 500. `X-Request-Id` and `Cache-Control: no-store` are already
 * set.
 */
export type Handler = (
  request: IncomingMessage,
  response: ServerResponse,
  requestId: string,
  events: RequestEvents,
) => void | Promise<void>;

/** Callbacks that a handler may set for its request. */
export interface RequestEvents {
  /**
   * Called when the response is closed, whether it was sent or not. Replaces a second listener on `close`:
   * with two listeners nearly every response survives its scavenges, which then take 10 times as long (Node
   * 24).
   */
  onClose: (() => void) | undefined;
}

/** The paths of a listener and their handlers. */
export interface Routes {
  /** Handlers by complete path, then by method. Any other method gets 405. */
  readonly exact: Readonly<Record<string, Readonly<Record<string, Handler>>>>;
  /**
   * Handlers by the beginning of a path, for every method. The first match is used if no complete path
   * matches.
   */
  readonly below: readonly (readonly [prefix: string, handler: Handler])[];
}

/** Creates a handler that chooses the handler of each request by its path, without the query. */
export function createRouter({ exact, below }: Routes): Handler {
  const paths = new Map(Object.entries(exact));
  return (request, response, requestId, events) => {
    const [path = ''] = (request.url ?? '').split('?', 1);
    const methods = paths.get(path);
    const handler =
      methods === undefined
        ? below.find(([prefix]) => path.startsWith(prefix))?.[1]
        : methods[request.method ?? ''];
    if (handler !== undefined) return handler(request, response, requestId, events);
    if (methods === undefined) throw new ApiError('NOT_FOUND', 'no such path');
    const names = Object.keys(methods).join(', ');
    response.setHeader('Allow', names);
    throw new ApiError('METHOD_NOT_ALLOWED', `this path accepts only ${names}`);
  };
}

/** A listener of this process. */
export interface Listener {
  /**
   * Resolves with the address in use, as `http://host:port`, or `https:`. Port 0 = any free port.
   * @param isShared true if other processes may listen at the same port
   */
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
  const stopListening = () => {
    closed ??= stopAccepting(server);
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
  allowHalfOpen(server, !options.endIsAbort);
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

/** The options that decide how a listener treats each request. */
interface RequestOptions {
  readonly serve: Handler;
  readonly log: Pick<Logger, 'error'>;
  /** Called for each request refused because of REQUESTS_IN_FLIGHT_MAX. */
  readonly crowded?: () => void;
  /** True if errors have the form of RFC 9457 instead of the contract's. */
  readonly problems?: boolean;
}

/** A request, answered or not. */
interface OpenRequest extends RequestEvents {
  readonly response: ServerResponse;
  readonly requestId: string;
  /** True if a broken request followed this one, and gets its refusal after this one's answer. */
  refused: boolean;
}

/** The requests of a listener that are not answered yet. */
class OpenRequests {
  readonly #options: RequestOptions;
  readonly #isFull: () => boolean;
  readonly #open = new SlotList<ServerResponse>();
  /** The last request of each connection. */
  readonly #latest = new WeakMap<Duplex, OpenRequest>();
  #isClosing = false;

  /** @param isFull returns true while more requests are in flight than the limit */
  constructor(options: RequestOptions, isFull: () => boolean) {
    this.#options = options;
    this.#isFull = isFull;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Returns true if no request on this connection waits for its answer. */
  isIdle(socket: Duplex): boolean {
    return this.#latest.get(socket)?.response.closed !== false;
  }

  /** From now on every answer says `Connection: close`. */
  drain(): void {
    this.#isClosing = true;
    for (const response of this.#open) {
      if (this.#latest.get(response.req.socket)?.response === response) response.shouldKeepAlive = false;
    }
  }

  /** Serves a request, and answers it even if the handler fails. */
  serve(request: IncomingMessage, response: ServerResponse): void {
    const requestId = requestIdFrom(request.headers['x-request-id']);
    if (this.#isClosing) response.shouldKeepAlive = false;
    const openRequest: OpenRequest = { response, requestId, onClose: undefined, refused: false };
    this.#latest.set(request.socket, openRequest);
    const place = this.#open.add(response);
    response.once('close', () => {
      this.#open.remove(place);
      openRequest.onClose?.();
      if (request.socket instanceof DelegatedRequest) request.socket.finishAnswer();
    });
    const fail = (error: unknown) => this.#fail(request, openRequest, error);
    try {
      if (this.#isFull()) {
        this.#options.crowded?.();
        throw unavailable('too many requests at once');
      }
      checkHead(request);
      this.#options.serve(request, response, requestId, openRequest)?.catch(fail);
    } catch (error) {
      fail(error);
    }
  }

  #fail(request: IncomingMessage, { response, requestId }: OpenRequest, error: unknown): void {
    const { log, problems = false } = this.#options;
    const apiError = toApiError(error, log, { requestId, traceId: traceIdOf(request.headers.traceparent) });
    if (response.headersSent) return void (apiError !== error && response.destroy());
    try {
      answerError(response, apiError, requestId, problems);
    } catch (err) {
      // An error thrown here would be unhandled and end the process, and so lose all other requests.
      log.error({ requestId, err }, UNHANDLED);
      response.destroy();
    }
  }

  /** Answers bytes that never became a request, after all earlier requests on the same connection. */
  refuse(socket: Duplex, error: ApiError, ownId = newRequestId()): void {
    const { problems = false } = this.#options;
    const last = this.#latest.get(socket);
    if (last !== undefined && !last.response.req.complete) {
      const { response, requestId } = last;
      if (response.writableFinished) return void socket.destroy();
      // Another request's answer is half sent. Closing the connection in order would make that answer look
      // complete.
      if (response.headersSent && last.onClose) return void response.destroy();
      response.shouldKeepAlive = false;
      if (!response.headersSent) answerError(response, error, requestId, problems);
      return void response.end();
    }
    const write = () => {
      if (!socket.writable) return void socket.destroy();
      socket.end((problems ? refusalAsProblem : refusalAsJson)(error, ownId, undefined));
      setTimeout(() => socket.destroy(), LINGER_MS).unref();
    };
    if (last === undefined || last.response.closed) return void write();
    // Node reports the same fault at each further read.
    if (last.refused) return;
    last.refused = true;
    // Runs before Node's own listener, which ends the connection if the client has ended its side.
    last.response.prependOnceListener('finish', () => {
      if (last.response.shouldKeepAlive) write();
    });
  }
}

/** Checks the rules of HTTP/1.1 for every request, whatever its path (RFC 9110 §10.1.1, RFC 9112 §3.2). */
function checkHead({ headers, httpVersion }: IncomingMessage): void {
  if (httpVersion !== '1.1') return;
  if (headers.host === undefined) throw new ApiError('BAD_REQUEST', 'Host: required');
  if (headers.expect !== undefined && headers.expect.toLowerCase() !== '100-continue') {
    throw new ApiError('EXPECTATION_FAILED', 'Expect: only 100-continue is supported');
  }
}
