import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Dispatcher, Pool } from 'undici';
import { ApiError } from '#shared/errors.ts';
import { readCopies } from '#shared/read-buffer.ts';
import { endToEndHeaders } from './end-to-end-headers.ts';
import type { Hooks } from './routes.ts';
import { join } from './tunnel.ts';

/** Bounds of a relay. */
export interface RelayLimits {
  /** Requests passed on at once, each on a connection of its own. */
  readonly connectionsMax: number;
  /** The longest wait for the head of a response, and then between two pieces of its body, milliseconds. */
  readonly timeoutMs: number;
}

/**
 * Why a request got no response: `busy` = over `connectionsMax`, `unreachable` = no connection, both before anything
 * was sent; `late` = no head in time and `cut` = the connection ended, both with an outcome that nobody knows.
 */
export type RelayFault = 'busy' | 'unreachable' | 'late' | 'cut';

/** What became of the requests that a relay was given. */
export interface RelayStats {
  /** Passed on and not yet answered whole. */
  readonly inFlight: number;
  /** Those that got no response. */
  readonly faults: Readonly<Record<RelayFault, number>>;
}

/** No response came; nothing was written to the client. */
export class RelayError extends Error {
  readonly fault: RelayFault;
  constructor(fault: RelayFault, cause?: unknown) {
    super(`no response: ${fault}`, { cause });
    this.name = 'RelayError';
    this.fault = fault;
  }
}

const CONNECT_TIMEOUT_MS = 2000;
/** What may be asked twice without another effect than once. */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);
/** Bodies up to here are copied, which costs less than another write. */
const STRING_BYTES_MAX = 4096;

/**
 * Passes requests on to one server over pooled HTTP/1.1 connections. Bodies stream both ways at the pace of the
 * slower side and are never held whole; what speaks of one connection only stays behind.
 */
export class Relay implements RelayStats {
  readonly faults = { busy: 0, unreachable: 0, late: 0, cut: 0 };
  readonly #pool: Pool;
  readonly #path: string;
  readonly #servername: string;
  readonly #limits: RelayLimits;
  #inFlight = 0;

  /** Loads undici only now, because it costs a start 90 ms. `base` may have a path, which goes before every target. */
  static async to(base: URL, limits: RelayLimits): Promise<Relay> {
    const { buildConnector, Pool } = await import('undici');
    const connect = buildConnector({ timeout: CONNECT_TIMEOUT_MS, allowH2: false });
    const pool = new Pool(base.origin, {
      connect: (options, callback) =>
        connect(options, (...result) => {
          if (result[1]) readCopies(result[1]);
          callback(...result);
        }),
      connections: limits.connectionsMax,
      headersTimeout: limits.timeoutMs,
      bodyTimeout: limits.timeoutMs,
      allowH2: false,
    });
    return new Relay(pool, base, limits);
  }

  private constructor(pool: Pool, base: URL, limits: RelayLimits) {
    this.#pool = pool;
    this.#path = base.pathname.replace(/\/$/, '');
    this.#servername = base.hostname;
    this.#limits = limits;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /**
   * Resolves when the client has the response, or has gone. Rejects with RelayError while nothing has been written
   * to it, and with ApiError where the request cannot be passed on; a response that breaks off later is cut. A safe
   * request without a body is sent a second time where the connection ended before the response.
   * @param options.target path and query to ask for
   * @param options.headers names and values in turn
   * @param options.hooks those of the request
   * @param options.responseHeaders likewise, added to those of the response
   * @param options.tunnelIdleMs with it the request asks for a WebSocket: where the server agrees, both connections
   *   become one, until either ends or nothing moved for so long
   */
  async send(
    request: IncomingMessage,
    response: ServerResponse,
    options: {
      target: string;
      headers: string[];
      hooks: Hooks;
      responseHeaders?: readonly string[];
      tunnelIdleMs?: number | undefined;
    },
  ): Promise<void> {
    const body = bodyOf(request, response);
    if (this.#inFlight >= this.#limits.connectionsMax) {
      this.faults.busy++;
      throw new RelayError('busy');
    }
    this.#inFlight++;
    try {
      const { headers, hooks, responseHeaders = [], tunnelIdleMs } = options;
      const { method = 'GET' } = request;
      const upgrade = tunnelIdleMs === undefined ? null : 'websocket';
      const path = this.#path + options.target;
      // `servername` is missing from the types; without it the client's Host would choose whose certificate will do.
      const sent = { method, path, headers, body, upgrade, servername: this.#servername };
      const dispatch = () => {
        const exchange = new Exchange(response, hooks, responseHeaders, tunnelIdleMs);
        this.#pool.dispatch(sent, exchange);
        return exchange.settled;
      };
      const mayRepeat = body === null && SAFE_METHODS.has(method);
      await dispatch().catch((error: RelayError) => {
        // Most often the server had just closed an idle connection (RFC 9110 §9.2.2).
        if (mayRepeat && error.fault === 'cut') return dispatch();
        throw error;
      });
    } catch (error) {
      if (error instanceof RelayError) this.faults[error.fault]++;
      throw error;
    } finally {
      this.#inFlight--;
    }
  }

  /** Cuts what is still under way. */
  close(): Promise<void> {
    return this.#pool.destroy();
  }
}

type Body = Exclude<Dispatcher.DispatchOptions['body'], undefined>;

/** The body, not yet read; null = there is none. Throws where two readers might see its end in different places. */
function bodyOf(request: IncomingMessage, response: ServerResponse): Body {
  const { 'transfer-encoding': coding, 'content-length': length, expect } = request.headers;
  if (coding === undefined && (length === undefined || Number(length) === 0)) return null;
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || request.httpVersion !== '1.1')) {
    throw new ApiError('BAD_REQUEST', 'Transfer-Encoding: only chunked, in HTTP/1.1');
  }
  // Not the stream itself: undici would destroy it, and with it the way to answer.
  const chunks = async function* () {
    if (expect !== undefined && request.httpVersion === '1.1') response.writeContinue();
    try {
      yield* request.iterator({ destroyOnReturn: false });
    } finally {
      // Where the answer came before the end of the body: nobody else reads the rest, and the connection would stand.
      request.resume();
    }
  };
  // undici takes any async iterable; its types name only streams.
  return chunks() as AsyncIterable<Buffer> as unknown as Body;
}

/** One request on its way, as undici tells of it. */
class Exchange implements Dispatcher.DispatchHandler {
  readonly #response: ServerResponse;
  readonly #added: readonly string[];
  readonly #settled = Promise.withResolvers<void>();
  #controller: Dispatcher.DispatchController | undefined;
  readonly #tunnelIdleMs: number | undefined;
  /** The first piece of the body. */
  #first: Buffer | undefined;
  #flushed = false;
  #over = false;

  constructor(
    response: ServerResponse,
    hooks: Hooks,
    added: readonly string[],
    tunnelIdleMs: number | undefined,
  ) {
    this.#response = response;
    this.#added = added;
    this.#tunnelIdleMs = tunnelIdleMs;
    // Not written where it is assigned: see "Garbage" in README.md.
    const abort = () => this.#controller?.abort(new Error('the client has gone'));
    hooks.closed = abort;
  }

  get settled(): Promise<void> {
    return this.#settled.promise;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#response.destroyed) controller.abort(new Error('the client has gone'));
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
    statusMessage = '',
  ): void {
    if (status < 200) return;
    const raw = latin1(controller.rawHeaders);
    const kept = endToEndHeaders(raw, headers.connection, () => false);
    kept.push(...this.#added);
    this.#response.writeHead(status, statusMessage, kept);
    process.nextTick(() => this.#flush(controller));
  }

  onRequestUpgrade(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
    upstream: Duplex,
  ): void {
    this.#end();
    const response = this.#response;
    const { socket: client } = response;
    if (client === null || headers.upgrade?.toLowerCase() !== 'websocket') {
      upstream.destroy();
      if (client === null) this.#settled.resolve();
      else this.#settled.reject(new RelayError('cut'));
      return;
    }
    const kept = endToEndHeaders(latin1(controller.rawHeaders), headers.connection, () => false);
    response.writeHead(status, ['Connection', 'Upgrade', 'Upgrade', 'websocket', ...kept, ...this.#added]);
    response.flushHeaders();
    join(client, upstream, this.#tunnelIdleMs ?? 0).then(this.#settled.resolve, this.#settled.reject);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#flushed && this.#first === undefined) {
      this.#first = chunk;
      return;
    }
    this.#flush(controller);
    this.#write(controller, chunk);
  }

  /** From here on a client that leaves has nothing to abort. */
  #end(): void {
    this.#over = true;
    this.#controller = undefined;
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    this.#end();
    const trailers = latin1(controller.rawTrailers);
    if (trailers.length > 0) {
      this.#response.addTrailers(pairs(endToEndHeaders(trailers, undefined, isFraming)));
    }
    const last = this.#flushed ? undefined : this.#first;
    // Node sends a head and a string at once, a buffer apart.
    if (last !== undefined && last.length <= STRING_BYTES_MAX)
      this.#response.end(last.toString('latin1'), 'latin1');
    else this.#response.end(last);
    this.#settled.resolve();
  }

  /** Sends the head with what is here of the body, which waited for the rest of it for a moment. */
  #flush(controller: Dispatcher.DispatchController): void {
    if (this.#flushed || this.#over) return;
    this.#flushed = true;
    if (this.#first === undefined) this.#response.flushHeaders();
    else this.#write(controller, this.#first);
  }

  #write(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#response.write(chunk)) return;
    controller.pause();
    this.#response.once('drain', () => controller.resume());
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    const fault = this.#faultOf(error);
    this.#end();
    if (this.#response.headersSent) this.#response.destroy();
    if (this.#response.headersSent || this.#response.destroyed) this.#settled.resolve();
    else this.#settled.reject(new RelayError(fault, error));
  }

  #faultOf(error: Error): RelayFault {
    if (this.#controller === undefined) return 'unreachable';
    return 'code' in error && error.code === 'UND_ERR_HEADERS_TIMEOUT' ? 'late' : 'cut';
  }
}

const isFraming = (name: string) => name === 'content-length' || name === 'host';

function latin1(raw: Dispatcher.DispatchController['rawHeaders']): string[] {
  return Array.isArray(raw)
    ? raw.map((text) => (typeof text === 'string' ? text : text.toString('latin1')))
    : [];
}

function pairs(flat: readonly string[]): [string, string][] {
  return flat.flatMap((name, i) => (i % 2 === 0 ? [[name, flat[i + 1] ?? ''] as [string, string]] : []));
}
