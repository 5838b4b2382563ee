import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { newRequestId, requestIdFrom } from '#shared/contract/request-id.ts';
import { traceIdOf } from '#shared/contract/trace-id.ts';
import { toApiError, UNHANDLED } from '#shared/contract/unhandled-error.ts';
import { SlotList } from '#shared/lang/slot-list.ts';
import type { Logger } from '#shared/process/log.ts';
import { DelegatedRequest } from '../node-internals/delegated-request.ts';
import { refusalAsJson, refusalAsProblem } from './raw-head.ts';
import { answerError, LINGER_MS } from './respond.ts';
import type { Handler, RequestEvents } from './router.ts';

/** The options that decide how a listener treats each request. */
export interface RequestOptions {
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
export class OpenRequests {
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
