import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { listen } from '#shared/admin.ts';
import { ApiError, type ErrorCode, unavailable } from '#shared/errors.ts';
import type { Logger } from '#shared/process/log.ts';
import { newRequestId, requestIdFrom } from '#shared/request-id.ts';
import { SlotList } from '#shared/slot-list.ts';
import { traceIdOf } from '#shared/trace-id.ts';
import { toApiError, UNHANDLED } from '#shared/unhandled-error.ts';
import { DelegatedRequest } from './delegated-request.ts';
import type { HttpLimits } from './limits.ts';
import { refusalAsJson, refusalAsProblem } from './raw-head.ts';
import { answerError, LINGER_MS } from './respond.ts';
import type { Handler, RequestEvents } from './router.ts';
import { type Certificate, createHttpServer, Response } from './tls.ts';
import { listenUnix } from './unix-socket.ts';

/** A listener of this process. */
export interface Listener {
  /** Resolves with the address in use, as `http://host:port`, or `https:`. Port 0 = any free one. */
  listen(host: string, port: number): Promise<string>;
  /** Listens on a Unix socket that every local user may use, replacing one that nobody listens on. */
  listenUnix(path: string): Promise<string>;
  /** From now on every answer says `Connection: close`. */
  drain(): void;
  /**
   * Accepts no more connections, answers what has arrived with `Connection: close`, and resolves when every
   * connection is closed: those still open after `graceMs` are cut.
   */
  close(graceMs: number): Promise<void>;
  readonly requestsInFlight: number;
}

/** A lane: answers some requests before Node's server sees them. */
interface Lane {
  /** Requests that it is receiving or answering. */
  readonly inFlight: number;
  /** Set, it takes no new requests. */
  closing: boolean;
  /** Ends the connections on which nothing waits. */
  endIdle(): void;
}

/** Behaviour and limits of a listener. */
export interface ListenerOptions {
  readonly serve: Handler;
  readonly limits: HttpLimits;
  readonly log: Pick<Logger, 'error'>;
  /** Called for each request refused because of REQUESTS_IN_FLIGHT_MAX. */
  readonly crowded?: () => void;
  /** With it the listener speaks HTTPS. */
  readonly certificate?: Certificate | undefined;
  /** True if errors are told as RFC 9457 has it, rather than in the contract's shape. */
  readonly problems?: boolean;
  /** True if a client that ends its side gives up its request; otherwise that is answered all the same. */
  readonly endIsAbort?: boolean;
  /**
   * Chooses the requests that may take their connection over: `serve` gets them with `upgrade` true. None unless told.
   */
  readonly mayUpgrade?: (request: IncomingMessage) => boolean;
  /** Puts a lane in front. @param tooSlow answers a connection whose request did not come in time, and closes it */
  readonly lane?: (server: Server, tooSlow: (socket: Duplex, requestId?: string) => void) => Lane;
}

/** A request, answered or not. */
interface Received extends RequestEvents {
  readonly response: ServerResponse;
  readonly requestId: string;
  /** True if what came behind it will be refused when it is answered. */
  refused: boolean;
}

/** HTTP on `node:http`: every rule that does not depend on what is asked. */
export function createListener(options: ListenerOptions): Listener {
  const { limits, log, certificate, problems = false } = options;
  const refusal = problems ? refusalAsProblem : refusalAsJson;
  /** Requests not yet answered. */
  const open = new SlotList<ServerResponse>();
  /** The last request of each connection. */
  const latest = new WeakMap<Duplex, Received>();
  const sockets = new Set<Socket>();
  let closing = false;
  let removeSocket: (() => void) | undefined;

  const serve = (request: IncomingMessage, response: ServerResponse) => {
    const requestId = requestIdFrom(request.headers['x-request-id']);
    if (closing) response.shouldKeepAlive = false;
    const received: Received = { response, requestId, onClose: undefined, refused: false };
    latest.set(request.socket, received);
    const place = open.add(response);
    response.once('close', () => {
      open.remove(place);
      received.onClose?.();
      if (request.socket instanceof DelegatedRequest) request.socket.answered();
    });
    const fail = (error: unknown) => {
      const told = toApiError(error, log, { requestId, traceId: traceIdOf(request.headers.traceparent) });
      if (response.headersSent) return void (told !== error && response.destroy());
      try {
        answerError(response, told, requestId, problems);
      } catch (err) {
        // An error thrown here would be unhandled and end the process, with everybody's requests.
        log.error({ requestId, err }, UNHANDLED);
        response.destroy();
      }
    };
    try {
      if (inFlight() > limits.REQUESTS_IN_FLIGHT_MAX) {
        options.crowded?.();
        throw unavailable('too many requests at once');
      }
      judgeHead(request);
      options.serve(request, response, requestId, received)?.catch(fail);
    } catch (error) {
      fail(error);
    }
  };

  /** Answers what never became a request, after all that were sent before it on the same connection. */
  const refuse = (socket: Duplex, error: ApiError, ownId = newRequestId()) => {
    const last = latest.get(socket);
    if (last !== undefined && !last.response.req.complete) {
      const { response, requestId } = last;
      if (response.writableFinished) return socket.destroy();
      // Another request's answer is half sent: ending the connection in order would make it look whole.
      if (response.headersSent && last.onClose) return response.destroy();
      response.shouldKeepAlive = false;
      if (!response.headersSent) answerError(response, error, requestId, problems);
      return response.end();
    }
    const write = () => {
      if (!socket.writable) return socket.destroy();
      socket.end(refusal(error, ownId, undefined));
      setTimeout(() => socket.destroy(), LINGER_MS).unref();
    };
    if (last === undefined || last.response.closed) return write();
    // Each further read says so again.
    if (last.refused) return;
    last.refused = true;
    // Before Node's own listener, which ends the connection where the client has ended its side.
    last.response.prependOnceListener('finish', () => {
      if (last.response.shouldKeepAlive) write();
    });
  };

  const server = createHttpServer(
    {
      maxHeaderSize: limits.HEADER_BYTES_MAX,
      headersTimeout: Math.min(limits.HEADERS_TIMEOUT_MS, limits.REQUEST_TIMEOUT_MS || Infinity),
      requestTimeout: limits.REQUEST_TIMEOUT_MS,
      keepAliveTimeout: limits.KEEP_ALIVE_TIMEOUT_MS,
      connectionsCheckingInterval: Math.min(1000, limits.HEADERS_TIMEOUT_MS / 2),
      insecureHTTPParser: false,
      // Node would answer without our body; see `judgeHead`.
      requireHostHeader: false,
      // Behind one that is not answered it is a request like others: its answer must come after that one's.
      shouldUpgradeCallback: (request) =>
        latest.get(request.socket)?.response.closed !== false && options.mayUpgrade?.(request) === true,
    },
    certificate,
    serve,
  );
  // Emitted for a connection that could not be accepted, as when there are too many open files.
  server.on('error', (err) => server.listening && log.error({ err }, 'a connection was not accepted'));
  server.maxConnections = limits.CONNECTIONS_MAX;
  server.timeout = limits.STALL_TIMEOUT_MS;
  // HEADER_BYTES_MAX bounds them, and a lane does not count them.
  server.maxHeadersCount = 0;
  Object.assign(server, { httpAllowHalfOpen: !options.endIsAbort });
  server.on('checkContinue', serve);
  server.on('checkExpectation', serve);
  server.on('connect', (_request, socket) => {
    socket.on('error', () => socket.destroy());
    refuse(socket, new ApiError('NOT_FOUND', 'no such path'));
  });
  server.on('upgrade', (request, socket, head) => serve(request, responseOn(request, socket, head)));
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const { code = '' } = error;
    const isHttp = code.startsWith('HPE_') || code in BROKEN;
    if (!isHttp || !socket.writable) return socket.destroy();
    const broken: Readonly<Record<string, readonly [ErrorCode, string]>> = BROKEN;
    const [errorCode, message] = broken[code] ?? ['BAD_REQUEST', 'the request is not valid HTTP'];
    refuse(socket, new ApiError(errorCode, message));
  });
  const tooSlow = (socket: Duplex, requestId?: string) =>
    refuse(socket, new ApiError(...BROKEN.ERR_HTTP_REQUEST_TIMEOUT), requestId);
  const lane = options.lane?.(server, tooSlow);
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  const inFlight = () => open.size + (lane?.inFlight ?? 0);

  const drain = () => {
    closing = true;
    if (lane) lane.closing = true;
    for (const response of open) {
      if (latest.get(response.req.socket)?.response === response) response.shouldKeepAlive = false;
    }
  };

  return {
    get requestsInFlight() {
      return inFlight();
    },
    async listen(host, port) {
      const address = await listen(server, host, port);
      return certificate === undefined ? address : address.replace('http:', 'https:');
    },
    async listenUnix(path) {
      removeSocket = await listenUnix(server, path);
      return path;
    },
    drain,
    async close(graceMs) {
      drain();
      // What reached this machine before is read in the next turns of the event loop, and answered.
      for (let turn = 0; turn < 2; turn++) await new Promise(setImmediate);
      removeSocket?.();
      const closed = new Promise((resolve) => server.close(resolve));
      lane?.endIdle();
      const timer = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, graceMs);
      await closed;
      clearTimeout(timer);
    },
  };
}

/** Refusals that Node makes by itself, in the contract's words. */
const BROKEN = {
  HPE_HEADER_OVERFLOW: ['HEADERS_TOO_LARGE', 'headers: over the limit'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['PAYLOAD_TOO_LARGE', 'body: chunk extensions over the limit'],
  ERR_HTTP_REQUEST_TIMEOUT: ['REQUEST_TIMEOUT', 'the request did not arrive in time'],
} as const satisfies Record<string, readonly [ErrorCode, string]>;

/** Checks what HTTP/1.1 asks of every request, whatever its path (RFC 9110 §10.1.1, RFC 9112 §3.2). */
function judgeHead({ headers, httpVersion }: IncomingMessage): void {
  if (httpVersion !== '1.1') return;
  if (headers.host === undefined) throw new ApiError('BAD_REQUEST', 'Host: required');
  if (headers.expect !== undefined && headers.expect.toLowerCase() !== '100-continue') {
    throw new ApiError('EXPECTATION_FAILED', 'Expect: only 100-continue is understood');
  }
}

/** A response for a request that Node has let go of, so that where it is refused its client hears why. */
function responseOn(request: IncomingMessage, socket: Duplex, head: Buffer): ServerResponse {
  socket.unshift(head);
  const response = new Response(request);
  response.shouldKeepAlive = false;
  response.assignSocket(request.socket);
  socket.on('drain', () => response.emit('drain')).on('error', () => socket.destroy());
  response.once('finish', () => request.socket.destroySoon());
  return response;
}
