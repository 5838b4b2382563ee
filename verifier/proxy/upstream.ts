import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { isIP, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Client, Dispatcher } from 'undici';
import type { Clock, Timer } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { lookupBy, NameResolver } from '#shared/process/name-resolver.ts';
import { readCopies } from '#shared/process/read-buffer.ts';
import { Seldom } from '#shared/process/seldom.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { traceIdIn } from '#shared/rules/request-id.ts';
import type { RequestEvents } from '../doors/http/server.ts';
import type { Ended } from '../metering/on-abort.ts';
import { type Connection, Connections, IDLE_MS_MAX, isByServer, TOLD_MARGIN_MS } from './connections.ts';
import { endToEndHeaders, isOfConnection } from './headers.ts';
import type { Downstream } from './raw-response.ts';

/** The limits of an upstream pool. */
interface UpstreamLimits {
  /**
   * Maximum number of simultaneous requests, each on a connection of its own. A holder gets at most as many
   * as remain free.
   */
  readonly connectionsMax: number;
  /** The longest wait for the head of a response, and between two chunks of its body, in milliseconds. */
  readonly timeoutMs: number;
  /** Maximum length of a response's head, in bytes of names and values. */
  readonly headerBytesMax: number;
}

/** The counts of requests passed on to one server. */
export interface UpstreamStats {
  /** Requests that are not completely answered yet. */
  readonly inFlight: number;
  /** Requests that got no response. */
  readonly faults: Readonly<Record<UpstreamFault, number>>;
}

const CONNECT_TIMEOUT_MS = 2000;
/** Methods that may be sent twice with the same effect as once (RFC 9110 §9.2.2). */
const IDEMPOTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE']);

/**
 * A pool of HTTP/1.1 connections to one server. Bodies stream in both directions at the pace of the slower
 * side and are never kept whole. Headers about a single connection are not passed on.
 */
export class UpstreamPool implements UpstreamStats {
  readonly faults = { busy: 0, unreachable: 0, late: 0, cut: 0, invalid: 0 };
  readonly #connections: Connections;
  readonly #path: string;
  readonly #servername: string;
  readonly #limits: UpstreamLimits;
  readonly #log: FaultLog;
  readonly #clock: Clock;
  readonly #held = new HolderCounts();
  #inFlight = 0;

  /**
   * Creates a pool. Loads undici only when called, because loading takes 90 ms. `base` may have a path; it is
   * prefixed to every target, and no target can escape it.
   */
  static async to(base: URL, limits: UpstreamLimits, log: FaultLog, clock: Clock): Promise<UpstreamPool> {
    const { buildConnector, Client } = await import('undici');
    // While the server's name server is silent, each request would hold what Redis needs for its own name.
    const lookup = lookupBy(new NameResolver(clock).resolve);
    const connect = buildConnector({ timeout: CONNECT_TIMEOUT_MS, allowH2: false, lookup });
    const address = base.hostname.replace(/^\[|\]$/g, '');
    // For an IP address, the certificate is checked against the connection's address, because an address is
    // not allowed as a server name (RFC 6066 §3).
    const servername = isIP(address) === 0 ? address : '';
    const options: Client.Options = {
      connect: (to, callback) =>
        connect({ ...to, servername }, (...result) => {
          if (result[1]) readCopies(result[1]);
          callback(...result);
        }),
      headersTimeout: limits.timeoutMs,
      bodyTimeout: limits.timeoutMs,
      maxHeaderSize: limits.headerBytesMax,
      keepAliveTimeout: IDLE_MS_MAX,
      keepAliveTimeoutThreshold: TOLD_MARGIN_MS,
      allowH2: false,
    };
    const create = () => new Client(base.origin, options);
    const connections = new Connections(create, clock, limits.connectionsMax);
    return new UpstreamPool(connections, base, limits, log, clock);
  }

  private constructor(
    connections: Connections,
    base: URL,
    limits: UpstreamLimits,
    log: FaultLog,
    clock: Clock,
  ) {
    this.#log = log;
    this.#clock = clock;
    this.#connections = connections;
    this.#path = base.pathname.replace(/\/$/, '');
    this.#servername = base.hostname;
    this.#limits = limits;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Throws an ApiError if a target could lead out of the path of the server's address. */
  checkTarget(target: string): void {
    if (this.#path !== '' && mayClimb(target))
      throw new ApiError('BAD_REQUEST', 'path: must not lead out of the configured path');
  }

  /**
   * Passes a request on, whose target was checked. Resolves with how the response ended. Rejects with UpstreamError if nothing has been written to the
   * client. A response that breaks off later is cut. If the server closed the connection before any part of a response arrived, the request is sent a
   * second time on a new connection, if nothing of it was sent, or if it is idempotent and has no body.
   * @param options.body `null` = none; see `bodyOf`
   * @param options.keyId the holder of the connection. A holder gets at most as many connections as remain
   * free, so that there is always one for another holder. undefined = only `connectionsMax` applies
   * @param options.target path and query to request
   * @param options.headers header names and values, alternating
   * @param options.events events of the client's request
   * @param options.rawHeaders headers of the client's request, as they arrived
   * @param options.responseHeaders header names and values to add to the response
   * @param options.tunnelIdleMs if present, the request asks for a WebSocket. If the server agrees, the two
   * connections are joined until either ends, or until no data moves for this time
   */
  async send(
    response: Downstream,
    options: {
      method: string;
      body: Body;
      target: string;
      headers: string[];
      events: RequestEvents;
      requestId: string;
      rawHeaders: readonly string[];
      responseHeaders?: readonly string[];
      tunnelIdleMs?: number | undefined;
      keyId?: string;
      cost?: CostReader;
    },
  ): Promise<Ended> {
    const { keyId } = options;
    const place = keyId === undefined ? undefined : this.#held.placeOf(keyId);
    const heldCount = place === undefined ? 0 : this.#held.at(place);
    if (heldCount >= this.#limits.connectionsMax - this.#inFlight)
      throw this.logFault(new UpstreamError('busy'), options);
    this.#inFlight++;
    if (place !== undefined) this.#held.add(place, 1);
    try {
      const { method, body, headers, events, responseHeaders = [], tunnelIdleMs, cost = NO_COST } = options;
      const upgrade = tunnelIdleMs === undefined ? null : 'websocket';
      const path = this.#path + options.target;
      // `servername` is missing from undici's types. Without it, each different Host from a client would cost
      // a new connection.
      const upstreamRequest = { method, path, headers, body, upgrade, servername: this.#servername };
      const limit = { clock: this.#clock, timeoutMs: this.#limits.timeoutMs };
      const isRepeatable = body === null && IDEMPOTENT.has(method);
      const dispatch = async (connection: Connection) => {
        let isReusable = false;
        try {
          const added = responseHeaders;
          const handler = new UpstreamHandler(connection, response, events, added, tunnelIdleMs, limit, cost);
          connection.client.dispatch(upstreamRequest, handler);
          const ended = await handler.ended;
          isReusable = ended === 'whole' && upgrade === null;
          return ended;
        } finally {
          if (isReusable) this.#connections.giveBack(connection);
          else this.#connections.drop(connection);
        }
      };
      const connection = this.#connections.take(isRepeatable);
      return await dispatch(connection).catch((error: UpstreamError) => {
        if (error.isUnsent && error.isClosed) this.#connections.learn(connection);
        if (!error.isClosed || (error.isWritten && !isRepeatable)) throw error;
        return dispatch(this.#connections.open());
      });
    } catch (error) {
      throw error instanceof UpstreamError ? this.logFault(error, options) : error;
    } finally {
      this.#inFlight--;
      if (place !== undefined) this.#held.add(place, -1);
    }
  }

  logFault(error: UpstreamError, request: Parameters<FaultLog['tell']>[1]): UpstreamError {
    this.faults[error.fault]++;
    this.#log.tell(error, request);
    return error;
  }

  /** Closes the pool, and cuts the requests that are still running. */
  close(): Promise<void> {
    return this.#connections.close();
  }
}

/** A body to pass on; null = none. */
export type Body = Exclude<Dispatcher.DispatchOptions['body'], undefined>;

/** Returns the body, still unread; null = none. Throws if two readers might disagree about the body's end. */
export function bodyOf(request: IncomingMessage, response: ServerResponse): Body {
  const { 'transfer-encoding': coding, 'content-length': length, expect } = request.headers;
  if (coding === undefined && (length === undefined || Number(length) === 0)) return null;
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || request.httpVersion !== '1.1')) {
    throw new ApiError('BAD_REQUEST', 'Transfer-Encoding: only "chunked" is supported, and only in HTTP/1.1');
  }
  // An iterator, because undici would destroy the stream itself, and then no answer could be sent.
  const chunks = async function* () {
    if (expect !== undefined && request.httpVersion === '1.1') {
      // Waits for this request's turn. Node 24 would keep an earlier 100 and send it inside the body of the
      // previous answer. If the client leaves first, this promise never settles.
      if (!response.socket) await new Promise((turn) => response.once('socket', turn));
      if (!response.headersSent) response.writeContinue();
    }
    try {
      yield* request.iterator({ destroyOnReturn: false });
    } finally {
      // If the answer came before the end of the body, nobody else reads the rest, and the connection would
      // hang.
      request.resume();
    }
  };
  // undici takes any async iterable, but its types name only streams.
  return chunks() as AsyncIterable<Buffer> as unknown as Body;
}

/**
 * The reason why a request got no response. Before anything was sent: `busy` = over `connectionsMax`;
 * `unreachable` = no connection. Later, when the request's effect is unknown: `late` = no head in time; `cut`
 * = the connection ended; `invalid` = no response that can be passed on.
 */
export type UpstreamFault = 'busy' | 'unreachable' | 'late' | 'cut' | 'invalid';

/** Thrown if no response came; nothing was written to the client. */
export class UpstreamError extends Error {
  readonly fault: UpstreamFault;
  /** True = the request did not reach the server. */
  readonly isUnsent: boolean;
  /** True = something of the request was written to a connection. */
  readonly isWritten: boolean;
  /** True = the server closed the connection before any part of a response arrived. */
  readonly isClosed: boolean;
  constructor(
    fault: UpstreamFault,
    cause?: unknown,
    { isUnsent = true, isWritten = false, isClosed = false } = {},
  ) {
    super(`no response: ${fault}`, { cause });
    this.name = 'UpstreamError';
    this.fault = fault;
    this.isUnsent = isUnsent;
    this.isWritten = isWritten;
    this.isClosed = isClosed;
  }
}

/** The longest wait for the head of a response after the request is sent. */
interface HeadLimit {
  readonly clock: Clock;
  readonly timeoutMs: number;
}

/** Longest body that is copied behind its head: for a short one that costs less than another write. */
const STRING_BYTES_MAX = 4096;

/** Maximum number of 1xx heads before the final head. A server that sends more is not about to answer. */
export const INTERIM_HEADS_MAX = 100;

/**
 * Limits to what is still read of a response after its client has left, because its trailer may say the cost: time in
 * milliseconds, and bytes.
 */
const REST_MS_MAX = 1000;
const REST_BYTES_MAX = 65_536;

/** The header or trailer in which the server says what a request cost, in credits. */
const COST_HEADER = 'x-keyfence-cost';

/** A reader of what the server says that a request cost. */
interface CostReader {
  /** Takes each value of `X-Keyfence-Cost` of the response, which is then not passed on; undefined = it is passed on. */
  readonly take?: (cost: string) => void;
  /** True = the cost counts even after the client has gone. */
  readonly isAwaited: boolean;
}

const NO_COST: CostReader = { isAwaited: false };

/** One request to the upstream, with undici's callbacks. */
class UpstreamHandler implements Dispatcher.DispatchHandler {
  readonly #connection: Connection;
  readonly #response: Downstream;
  readonly #addedHeaders: readonly string[];
  readonly #ended = Promise.withResolvers<Ended>();
  #controller: Dispatcher.DispatchController | undefined;
  readonly #tunnelIdleMs: number | undefined;
  readonly #limit: HeadLimit;
  readonly #cost: CostReader;
  /** The time at which the last part of the request was sent. */
  #sentMs: number | undefined;
  #interimHeads = 0;
  /** Timer for the final head after a 1xx head. */
  #headTimer: Timer | undefined;
  #isLate = false;
  /** The first chunk of the body. */
  #first: Buffer | undefined;
  #hasBegun = false;
  /** True = the request was written, at least in part. */
  #isWritten = false;
  /** True while a head is being written, after writing it failed, and after too many 1xx heads. */
  #isUnfit = false;
  #flushed = false;
  #over = false;
  #hasLeft = false;
  /** Bytes of the body since the client has left; undefined = it has not. */
  #restBytes: number | undefined;
  #restTimer: Timer | undefined;

  constructor(
    connection: Connection,
    response: Downstream,
    events: RequestEvents,
    addedHeaders: readonly string[],
    tunnelIdleMs: number | undefined,
    limit: HeadLimit,
    cost: CostReader,
  ) {
    this.#connection = connection;
    this.#cost = cost;
    this.#response = response;
    this.#limit = limit;
    this.#addedHeaders = addedHeaders;
    this.#tunnelIdleMs = tunnelIdleMs;
    // A separate function instead of one written in the assignment: see "Garbage" in
    // verifier/doors/lane/README.md.
    const leave = () => this.#leave();
    events.onClose = leave;
  }

  /** Resolves as `send` does. */
  get ended(): Promise<Ended> {
    return this.#ended.promise;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    this.#hasLeft ||= this.#response.destroyed;
    // undici writes the request after this, unless it is aborted.
    this.#isWritten = !this.#hasLeft;
    if (this.#hasLeft) controller.abort(new Error('the client has gone'));
  }

  /** Ends the request after the client has gone, or first reads the rest, whose trailer may say the cost. */
  #leave(): void {
    if (this.#over) return;
    this.#hasLeft = true;
    const abort = () => this.#controller?.abort(new Error('the client has gone'));
    if (!this.#cost.isAwaited || !this.#response.headersSent) {
      abort();
      return;
    }
    this.#restBytes = 0;
    this.#restTimer = this.#limit.clock.after(REST_MS_MAX, abort);
    this.#controller?.resume();
  }

  onRequestSent(): void {
    this.#sentMs = this.#limit.clock.monotonicMs();
  }

  onResponseStarted(): void {
    this.#hasBegun = true;
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
    statusMessage = '',
  ): void {
    if (status < 200) {
      this.#awaitHead();
      if (++this.#interimHeads <= INTERIM_HEADS_MAX) return;
      this.#isUnfit = true;
      controller.abort(new Error('too many 1xx responses'));
      return;
    }
    this.#headTimer?.cancel();
    this.#connection.noteKeepAlive(headers['keep-alive']?.toString());
    const raw = latin1(controller.rawHeaders);
    const passedHeaders = endToEndHeaders(raw, headers.connection, this.#drop);
    passedHeaders.push(...this.#addedHeaders);
    this.#isUnfit = true;
    this.#response.writeHead(status, phraseOf(statusMessage), passedHeaders);
    this.#isUnfit = false;
    process.nextTick(() => this.#flush(controller));
  }

  /**
   * Bounds the wait for the final head. undici restarts its own timer with each 1xx head; this timer goes on.
   */
  #awaitHead(): void {
    if (this.#headTimer !== undefined || this.#sentMs === undefined) return;
    const { clock, timeoutMs } = this.#limit;
    this.#headTimer = clock.after(Math.max(0, this.#sentMs + timeoutMs - clock.monotonicMs()), () => {
      this.#isLate = true;
      this.#controller?.abort(new Error('only 1xx responses, and no final one in time'));
    });
  }

  onRequestUpgrade(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
    upstream: Duplex,
  ): void {
    this.#end();
    // undici has released the socket, and without a listener an error would end the process.
    upstream.on('error', () => upstream.destroy());
    const response = this.#response;
    const { socket: client } = response;
    if (client === null || headers.upgrade?.toLowerCase() !== 'websocket') {
      upstream.destroy();
      if (client === null) this.#ended.resolve('left');
      else
        this.#ended.reject(
          new UpstreamError('invalid', new Error('101 to a protocol that was not requested'), {
            isUnsent: false,
          }),
        );
      return;
    }
    const passedHeaders = endToEndHeaders(latin1(controller.rawHeaders), headers.connection, this.#drop);
    response.writeHead(status, 'Switching Protocols', [
      'Connection',
      'Upgrade',
      'Upgrade',
      'websocket',
      ...passedHeaders,
      ...this.#addedHeaders,
    ]);
    response.flushHeaders();
    join(client, upstream, this.#tunnelIdleMs ?? 0, this.#limit.clock).then(
      () => this.#ended.resolve('whole'),
      this.#ended.reject,
    );
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#restBytes !== undefined) {
      this.#restBytes += chunk.length;
      if (this.#restBytes > REST_BYTES_MAX) controller.abort(new Error('the client has gone'));
      return;
    }
    if (!this.#flushed && this.#first === undefined) {
      this.#first = chunk;
      return;
    }
    this.#flush(controller);
    this.#write(controller, chunk);
  }

  readonly #drop = (name: string, value: string): boolean => {
    if (this.#cost.take === undefined || name !== COST_HEADER) return false;
    this.#cost.take(value);
    return true;
  };

  /** Ends the request. From now on a client that leaves aborts nothing. */
  #end(): void {
    this.#over = true;
    this.#headTimer?.cancel();
    this.#restTimer?.cancel();
    this.#controller = undefined;
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    this.#end();
    const trailers = latin1(controller.rawTrailers);
    if (trailers.length > 0) {
      const drop = (name: string, value: string) => isOfConnection(name) || this.#drop(name, value);
      this.#response.addTrailers(pairs(endToEndHeaders(trailers, undefined, drop)));
    }
    if (this.#restBytes !== undefined) return void this.#ended.resolve('whole');
    const last = this.#flushed ? undefined : this.#first;
    // Node sends a head and a string in one write, but a head and a buffer in two.
    const isShort = last !== undefined && last.length <= STRING_BYTES_MAX;
    this.#response.end(isShort ? last.toString('latin1') : last, 'latin1');
    this.#ended.resolve('whole');
  }

  /** Sends the head with the first chunk of the body, which briefly waited for the rest. */
  #flush(controller: Dispatcher.DispatchController): void {
    if (this.#flushed || this.#over || this.#restBytes !== undefined) return;
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
    const { isNew } = this.#connection;
    const isWritten = this.#isWritten;
    const isClosed = !this.#hasBegun && isByServer(error) && !(isNew && !isWritten);
    const isUnsent = !this.#hasBegun && (!isWritten || (!isNew && isClosed));
    this.#end();
    if (this.#response.headersSent) this.#response.destroy();
    if (this.#response.headersSent || this.#response.destroyed)
      this.#ended.resolve(isUnsent ? 'unsent' : this.#hasLeft ? 'left' : 'cut');
    else this.#ended.reject(new UpstreamError(fault, error, { isUnsent, isWritten, isClosed }));
  }

  #faultOf(error: Error): UpstreamFault {
    if (this.#controller === undefined) return 'unreachable';
    const code = 'code' in error ? error.code : undefined;
    if (this.#isLate || code === 'UND_ERR_HEADERS_TIMEOUT') return 'late';
    const isUnread = code === 'UND_ERR_HEADERS_OVERFLOW' || error.name === 'HTTPParserError';
    return isUnread || this.#isUnfit ? 'invalid' : 'cut';
  }
}

/**
 * Returns the original bytes of a reason phrase, as Latin-1. undici decodes a phrase as UTF-8; written as
 * Latin-1, `\u010a` would become a line end. Returns `''` if the bytes cannot be recovered or are not allowed
 * in a phrase.
 */
function phraseOf(text: string): string {
  if (/^[\t\x20-\x7e]*$/.test(text)) return text;
  const bytes = Buffer.from(text, 'utf8').toString('latin1');
  return text.includes('\ufffd') || !/^[\t\x20-\x7e\x80-\xff]*$/.test(bytes) ? '' : bytes;
}

function latin1(raw: Dispatcher.DispatchController['rawHeaders']): string[] {
  return Array.isArray(raw)
    ? raw.map((text) => (typeof text === 'string' ? text : text.toString('latin1')))
    : [];
}

function pairs(flat: readonly string[]): [string, string][] {
  return flat.flatMap((name, i) => (i % 2 === 0 ? [[name, flat[i + 1] ?? ''] as [string, string]] : []));
}

/**
 * Shortest time between two log lines about the same fault, so that a server that is down does not fill the
 * log.
 */
const PERIOD_MS = 1000;

/** A log of the reasons why requests that were passed on got no response. */
export class FaultLog {
  readonly #to: string;
  readonly #clock: Clock;
  readonly #log: Pick<Logger, 'warn'>;
  readonly #lines = new Map<UpstreamFault, Seldom>();

  /** @param to name of the server, in words */
  constructor(to: string, clock: Clock, log: Pick<Logger, 'warn'>) {
    this.#to = to;
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * Logs the fault, unless the same kind was logged less than PERIOD_MS ago. It then counts in `unsaid` of
   * the next line.
   */
  tell(
    error: UpstreamError,
    request: { readonly method: string; readonly requestId: string; readonly rawHeaders: readonly string[] },
  ): void {
    const { fault, cause } = error;
    const { method, requestId } = request;
    const line = this.#lines.get(fault) ?? new Seldom(this.#clock, PERIOD_MS);
    this.#lines.set(fault, line);
    line.tell((unsaid) => {
      const traceId = traceIdIn(request.rawHeaders);
      // Logs only the message: the rest of the error may contain data from the server.
      const reason = cause instanceof Error ? cause.message : undefined;
      this.#log.warn({ requestId, traceId, method, fault, reason, unsaid }, `no response from ${this.#to}`);
    });
  }
}

/**
 * Number of counts. It exceeds the number of possible connections, so that two names rarely share a count.
 */
const PLACES = 65_536;

/**
 * Counts for many holders, in memory that neither grows nor creates garbage. Two names with the same hash
 * share a count.
 */
class HolderCounts {
  readonly #counts = new Uint16Array(PLACES);

  /** Returns the place of a holder, for the other methods. */
  placeOf(name: string): number {
    let hash = 0x811c9dc5;
    for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
    return (hash ^ (hash >>> 16)) & (PLACES - 1);
  }

  at(place: number): number {
    return this.#counts[place] ?? 0;
  }

  add(place: number, count: 1 | -1): void {
    this.#counts[place] = this.at(place) + count;
  }
}

/** Number of times that a path is decoded, because a server may decode it again after a gateway did. */
const DECODINGS = 3;

/**
 * Returns true if a server might read the path as one that leads above its beginning: with `..` in any
 * encoding, with `\` read as `/`, with parameters removed (`..;a`), or with empty segments ignored.
 * @param target path and query; only the path is checked
 */
function mayClimb(target: string): boolean {
  const end = target.search(/[?#]/);
  let path = end < 0 ? target : target.slice(0, end);
  if (!/\.\.|%/.test(path)) return false;
  for (let i = 0; ; i++) {
    if (leads(path)) return true;
    const next = path.replace(/%([0-9a-f]{2})/gi, (_, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
    if (next === path || i === DECODINGS) return false;
    path = next;
  }
}

function leads(path: string): boolean {
  let depth = 0;
  for (const segment of path.split(/[/\\]/)) {
    // Some servers cut off parameters, blanks, and everything after a NUL.
    const [name = ''] = segment.split(/[;\0\s]/, 1);
    if (name === '..') depth--;
    else if (name !== '' && name !== '.') depth++;
    if (depth < 0) return true;
  }
  return false;
}

/** Time that the rest of a WebSocket has after one side has ended it, in milliseconds. */
const TUNNEL_END_MS = 3000;

/**
 * Passes bytes between two connections until both are closed, at the pace of the slower one. After the end of the
 * client, the server gets TUNNEL_END_MS to end, too. After the end of the server, the client may take the rest as long
 * as it does not pause for that time.
 * @param idleMs both are cut after this time without data; 0 = never
 */
async function join(client: Socket, upstream: Duplex, idleMs: number, clock: Clock): Promise<void> {
  let timer: Timer | undefined;
  const clientEnds = () => {
    timer ??= clock.after(TUNNEL_END_MS, () => [client, upstream].forEach((socket) => void socket.destroy()));
  };
  const [clientEnd, upstreamEnd] = [client, upstream].map((socket, i, both) => {
    const peer = both[1 - i];
    socket.on('error', () => socket.destroy());
    return new Promise<void>((resolve) => {
      socket.once('close', () => {
        // Delivers the bytes that this socket sent before it closed.
        if (peer instanceof Socket) peer.destroySoon();
        else peer?.destroy();
        resolve();
      });
    });
  });
  client.setTimeout(idleMs, () => client.destroy());
  client.once('end', clientEnds).once('close', clientEnds);
  upstream.once('end', () => client.setTimeout(TUNNEL_END_MS));
  client.pipe(upstream).pipe(client);
  await Promise.all([clientEnd, upstreamEnd]);
  timer?.cancel();
}

/**
 * Returns true if requests to `url` would arrive at our own listener on `host` and `port`. Compares only the
 * texts, without DNS.
 */
export function leadsTo(url: URL, host: string, port: number): boolean {
  const urlPort = Number(url.port) || (url.protocol === 'https:' ? 443 : 80);
  if (urlPort !== port) return false;
  const urlHost = url.hostname.replace(/^\[|\]$/g, '');
  const isLocal = LOOPBACK.has(urlHost);
  return urlHost === host || (isLocal && (ANY_ADDRESS.has(host) || (isIpv4(urlHost) && isIpv4(host))));
}

const ANY_ADDRESS: ReadonlySet<string> = new Set(['0.0.0.0', '::']);
const LOOPBACK: ReadonlySet<string> = new Set(['127.0.0.1', '::1', 'localhost', ...ANY_ADDRESS]);

/** Returns true if a loopback host is that of IPv4. */
const isIpv4 = (host: string) => host === '127.0.0.1' || host === 'localhost';
