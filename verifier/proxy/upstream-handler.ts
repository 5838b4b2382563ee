import type { IncomingHttpHeaders } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Dispatcher } from 'undici';
import type { Clock, Timer } from '#shared/lang/clock.ts';
import type { RequestEvents } from '../http/server.ts';
import { endToEndHeaders, isOfConnection } from './headers.ts';
import type { Downstream } from './raw-response.ts';
import { join } from './tunnel.ts';

/**
 * The reason why a request got no response. Before anything was sent: `busy` = over `connectionsMax`;
 * `unreachable` = no connection. Later, when the request's effect is unknown: `late` = no head in time; `cut`
 * = the connection ended; `invalid` = no response that can be passed on.
 */
export type UpstreamFault = 'busy' | 'unreachable' | 'late' | 'cut' | 'invalid';

/** Thrown if no response came; nothing was written to the client. */
export class UpstreamError extends Error {
  readonly fault: UpstreamFault;
  /** True if a part of a response had arrived. */
  readonly hasBegun: boolean;
  constructor(fault: UpstreamFault, cause?: unknown, hasBegun = false) {
    super(`no response: ${fault}`, { cause });
    this.name = 'UpstreamError';
    this.fault = fault;
    this.hasBegun = hasBegun;
  }
}

/** The longest wait for the head of a response after the request is sent. */
interface HeadLimit {
  readonly clock: Clock;
  readonly timeoutMs: number;
}

/** Longest body that is copied, because copying costs less than another write. */
const STRING_BYTES_MAX = 4096;

/** Maximum number of 1xx heads before the final head. A server that sends more is not about to answer. */
const INTERIM_HEADS_MAX = 100;

/** One request to the upstream, with undici's callbacks. */
export class UpstreamHandler implements Dispatcher.DispatchHandler {
  readonly #response: Downstream;
  readonly #addedHeaders: readonly string[];
  readonly #settled = Promise.withResolvers<void>();
  #controller: Dispatcher.DispatchController | undefined;
  readonly #tunnelIdleMs: number | undefined;
  readonly #limit: HeadLimit;
  /** The time at which the last part of the request was sent. */
  #sentMs: number | undefined;
  #interimHeads = 0;
  /** Timer for the final head after a 1xx head. */
  #headTimer: Timer | undefined;
  #isLate = false;
  /** The first chunk of the body. */
  #first: Buffer | undefined;
  #hasBegun = false;
  /** True while a head is being written, and after writing it failed. */
  #isUnfit = false;
  #flushed = false;
  #over = false;

  constructor(
    response: Downstream,
    events: RequestEvents,
    addedHeaders: readonly string[],
    tunnelIdleMs: number | undefined,
    limit: HeadLimit,
  ) {
    this.#response = response;
    this.#limit = limit;
    this.#addedHeaders = addedHeaders;
    this.#tunnelIdleMs = tunnelIdleMs;
    // A separate function instead of one written in the assignment: see "Garbage" in
    // verifier/request-path.md.
    const abort = () => this.#controller?.abort(new Error('the client has gone'));
    events.onClose = abort;
  }

  get settled(): Promise<void> {
    return this.#settled.promise;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#response.destroyed) controller.abort(new Error('the client has gone'));
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
    const raw = latin1(controller.rawHeaders);
    const passedHeaders = endToEndHeaders(raw, headers.connection, () => false);
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
      if (client === null) this.#settled.resolve();
      else
        this.#settled.reject(
          new UpstreamError('invalid', new Error('101 to a protocol that was not requested')),
        );
      return;
    }
    const passedHeaders = endToEndHeaders(latin1(controller.rawHeaders), headers.connection, () => false);
    response.writeHead(status, 'Switching Protocols', [
      'Connection',
      'Upgrade',
      'Upgrade',
      'websocket',
      ...passedHeaders,
      ...this.#addedHeaders,
    ]);
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

  /** Ends the request. From now on a client that leaves aborts nothing. */
  #end(): void {
    this.#over = true;
    this.#headTimer?.cancel();
    this.#controller = undefined;
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    this.#end();
    const trailers = latin1(controller.rawTrailers);
    if (trailers.length > 0) {
      this.#response.addTrailers(pairs(endToEndHeaders(trailers, undefined, isOfConnection)));
    }
    const last = this.#flushed ? undefined : this.#first;
    // Node sends a head and a string in one write, but a head and a buffer in two.
    const isShort = last !== undefined && last.length <= STRING_BYTES_MAX;
    this.#response.end(isShort ? last.toString('latin1') : last, 'latin1');
    this.#settled.resolve();
  }

  /** Sends the head with the first chunk of the body, which briefly waited for the rest. */
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
    else this.#settled.reject(new UpstreamError(fault, error, this.#hasBegun));
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
