import type { IncomingMessage, ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import type { Dispatcher, Pool } from 'undici';
import { ApiError } from '#shared/contract/errors.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { readCopies } from '#shared/lang/read-buffer.ts';
import type { Downstream } from '../http/raw-response.ts';
import type { RequestEvents } from '../http/router.ts';
import type { FaultLog } from './fault-log.ts';
import { HolderCounts } from './holder-counts.ts';
import { mayClimb } from './path.ts';
import { UpstreamError, type UpstreamFault, UpstreamHandler } from './upstream-handler.ts';

/** Limits of an upstream pool. */
export interface UpstreamLimits {
  /** Requests passed on at once, each on a connection of its own. A holder has at most as many as are left free. */
  readonly connectionsMax: number;
  /** The longest wait for the head of a response, and then between two pieces of its body, milliseconds. */
  readonly timeoutMs: number;
  /** Largest head of a response, bytes of names and values. */
  readonly headerBytesMax: number;
}

/** Counts of the requests passed on to one server. */
export interface UpstreamStats {
  /** Passed on and not yet answered whole. */
  readonly inFlight: number;
  /** Those that got no response. */
  readonly faults: Readonly<Record<UpstreamFault, number>>;
}

const CONNECT_TIMEOUT_MS = 2000;
/** Methods that may be sent twice without another effect than once. */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);
/**
 * Passes requests on to one server over pooled HTTP/1.1 connections. Bodies stream both ways at the pace of the
 * slower side and are never held whole; what speaks of one connection only stays behind.
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
   * Loads undici only now, because it costs a start 90 ms. `base` may have a path, which goes before every target and is
   * not left by any.
   */
  static async to(base: URL, limits: UpstreamLimits, log: FaultLog, clock: Clock): Promise<UpstreamPool> {
    const { buildConnector, Pool } = await import('undici');
    const connect = buildConnector({ timeout: CONNECT_TIMEOUT_MS, allowH2: false });
    const address = base.hostname.replace(/^\[|\]$/g, '');
    // A certificate for an address is found by where the connection leads; an address is no server name (RFC 6066 §3).
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
   * Resolves when the client has the response, or has gone. Rejects with UpstreamError while nothing has been written
   * to it, and with ApiError where the request cannot be passed on; a response that breaks off later is cut. A safe
   * request without a body is sent a second time where the connection ended before anything of a response came.
   * @param options.body `null` = none; see `bodyOf`
   * @param options.holder for whom: none may have more connections than are left free, so that there is always one for
   *   another. undefined = nobody in particular, bounded by `connectionsMax` alone
   * @param options.target path and query to ask for
   * @param options.headers names and values in turn
   * @param options.events those of the request
   * @param options.rawHeaders those of the request, as they came
   * @param options.responseHeaders likewise, added to those of the response
   * @param options.tunnelIdleMs with it the request asks for a WebSocket: where the server agrees, both connections
   *   become one, until either ends or nothing moved for so long
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
      throw new ApiError('BAD_REQUEST', 'path: must not lead above where it begins');
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
      // `servername` is missing from the types; without it each other Host of a client would cost a new connection.
      const upstreamRequest = { method, path, headers, body, upgrade, servername: this.#servername };
      const limit = { clock: this.#clock, timeoutMs: this.#limits.timeoutMs };
      const dispatch = () => {
        const handler = new UpstreamHandler(response, events, responseHeaders, tunnelIdleMs, limit);
        this.#pool.dispatch(upstreamRequest, handler);
        return handler.settled;
      };
      const mayRepeat = body === null && SAFE_METHODS.has(method);
      await dispatch().catch((error: UpstreamError) => {
        // Most often the server had just closed an idle connection (RFC 9110 §9.2.2).
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

  /** Cuts what is still under way. */
  close(): Promise<void> {
    return this.#pool.destroy();
  }
}

/** A body to pass on; null = there is none. */
export type Body = Exclude<Dispatcher.DispatchOptions['body'], undefined>;

/** The body, not yet read; null = there is none. Throws where two readers might see its end in different places. */
export function bodyOf(request: IncomingMessage, response: ServerResponse): Body {
  const { 'transfer-encoding': coding, 'content-length': length, expect } = request.headers;
  if (coding === undefined && (length === undefined || Number(length) === 0)) return null;
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || request.httpVersion !== '1.1')) {
    throw new ApiError('BAD_REQUEST', 'Transfer-Encoding: only chunked, in HTTP/1.1');
  }
  // An iterator, because undici would destroy the stream itself, and with it the way to answer.
  const chunks = async function* () {
    if (expect !== undefined && request.httpVersion === '1.1') {
      // Wait for this request's turn. Node 24 keeps a 100 that is said earlier and sends it within the body of an answer
      // that streams before it. If the client leaves first, this stays pending for good.
      if (!response.socket) await new Promise((turn) => response.once('socket', turn));
      if (!response.headersSent) response.writeContinue();
    }
    try {
      yield* request.iterator({ destroyOnReturn: false });
    } finally {
      // If the answer came before the end of the body, nobody else reads the rest, and the connection would hang.
      request.resume();
    }
  };
  // undici takes any async iterable; its types name only streams.
  return chunks() as AsyncIterable<Buffer> as unknown as Body;
}
