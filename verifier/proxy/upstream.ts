import type { IncomingMessage, ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import type { Dispatcher, Pool } from 'undici';
import { ApiError } from '#shared/contract/errors.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { readCopies } from '#shared/lang/read-buffer.ts';
import { lookupBy, NameResolver } from '#shared/process/name-resolver.ts';
import type { RequestEvents } from '../http/server.ts';
import type { FaultLog } from './fault-log.ts';
import { HolderCounts } from './holder-counts.ts';
import { mayClimb } from './path.ts';
import type { Downstream } from './raw-response.ts';
import { UpstreamError, type UpstreamFault, UpstreamHandler } from './upstream-handler.ts';

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
/** Methods that may be sent twice with the same effect as once. */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);
/**
 * A pool of HTTP/1.1 connections to one server. Bodies stream in both directions at the pace of the slower
 * side and are never kept whole. Headers about a single connection are not passed on.
 */
export class UpstreamPool implements UpstreamStats {
  readonly faults = { busy: 0, unreachable: 0, late: 0, cut: 0, invalid: 0 };
  readonly #pool: Pool;
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
    const { buildConnector, Pool } = await import('undici');
    // While the server's name server is silent, each request would hold what Redis needs for its own name.
    const lookup = lookupBy(new NameResolver(clock).resolve);
    const connect = buildConnector({ timeout: CONNECT_TIMEOUT_MS, allowH2: false, lookup });
    const address = base.hostname.replace(/^\[|\]$/g, '');
    // For an IP address, the certificate is checked against the connection's address, because an address is
    // not allowed as a server name (RFC 6066 §3).
    const servername = isIP(address) === 0 ? address : '';
    const pool = new Pool(base.origin, {
      connect: (options, callback) =>
        connect({ ...options, servername }, (...result) => {
          if (result[1]) readCopies(result[1]);
          callback(...result);
        }),
      connections: limits.connectionsMax,
      headersTimeout: limits.timeoutMs,
      bodyTimeout: limits.timeoutMs,
      maxHeaderSize: limits.headerBytesMax,
      allowH2: false,
    });
    return new UpstreamPool(pool, base, limits, log, clock);
  }

  private constructor(pool: Pool, base: URL, limits: UpstreamLimits, log: FaultLog, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
    this.#pool = pool;
    this.#path = base.pathname.replace(/\/$/, '');
    this.#servername = base.hostname;
    this.#limits = limits;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /**
   * Passes a request on. Resolves when the client has the response, or has gone. Rejects with UpstreamError
   * if nothing has been written to the client, and with ApiError if the request cannot be passed on. A
   * response that breaks off later is cut. A safe request without a body is sent a second time if the
   * connection ended before any part of a response arrived.
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
    },
  ): Promise<void> {
    if (this.#path !== '' && mayClimb(options.target)) {
      throw new ApiError('BAD_REQUEST', 'path: must not lead out of the configured path');
    }
    const { keyId } = options;
    const place = keyId === undefined ? undefined : this.#held.placeOf(keyId);
    const heldCount = place === undefined ? 0 : this.#held.at(place);
    if (heldCount >= this.#limits.connectionsMax - this.#inFlight)
      throw this.logFault(new UpstreamError('busy'), options);
    this.#inFlight++;
    if (place !== undefined) this.#held.add(place, 1);
    try {
      const { method, body, headers, events, responseHeaders = [], tunnelIdleMs } = options;
      const upgrade = tunnelIdleMs === undefined ? null : 'websocket';
      const path = this.#path + options.target;
      // `servername` is missing from undici's types. Without it, each different Host from a client would cost
      // a new connection.
      const upstreamRequest = { method, path, headers, body, upgrade, servername: this.#servername };
      const limit = { clock: this.#clock, timeoutMs: this.#limits.timeoutMs };
      const dispatch = () => {
        const handler = new UpstreamHandler(response, events, responseHeaders, tunnelIdleMs, limit);
        this.#pool.dispatch(upstreamRequest, handler);
        return handler.settled;
      };
      const mayRepeat = body === null && SAFE_METHODS.has(method);
      await dispatch().catch((error: UpstreamError) => {
        // In most cases the server had just closed an idle connection (RFC 9110 §9.2.2).
        if (mayRepeat && error.fault === 'cut' && !error.hasBegun) return dispatch();
        throw error;
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
    return this.#pool.destroy();
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
