import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { newRequestId, requestIdFrom } from '#shared/contract/request-id.ts';
import { traceIdOf } from '#shared/contract/trace-id.ts';
import { toApiError, UNHANDLED } from '#shared/contract/unhandled-error.ts';
import { SlotList } from '#shared/lang/slot-list.ts';
import type { Logger } from '#shared/process/log.ts';
import { DelegatedRequest } from './delegated-request.ts';
import { refusalAsJson, refusalAsProblem } from './raw-head.ts';
import { answerError, LINGER_MS } from './respond.ts';
import type { Handler, RequestEvents } from './router.ts';

/** Behaviour towards each request. */
export interface RequestOptions {
  readonly serve: Handler;
  readonly log: Pick<Logger, 'error'>;
  /** Called for each request refused because of REQUESTS_IN_FLIGHT_MAX. */
  readonly crowded?: () => void;
  /** True if errors are told as RFC 9457 has it, rather than in the contract's shape. */
  readonly problems?: boolean;
}

/** A request, answered or not. */
interface OpenRequest extends RequestEvents {
  readonly response: ServerResponse;
  readonly requestId: string;
  /** True if what came behind it will be refused when it is answered. */
  refused: boolean;
}

/** Requests of a listener that are not answered yet, in the order of their connections. */
export class OpenRequests {
  readonly #options: RequestOptions;
  readonly #isFull: () => boolean;
  readonly #open = new SlotList<ServerResponse>();
  /** The last request of each connection. */
  readonly #latest = new WeakMap<Duplex, OpenRequest>();
  #isClosing = false;

  /** @param isFull true while more requests are in flight than may be */
  constructor(options: RequestOptions, isFull: () => boolean) {
    this.#options = options;
    this.#isFull = isFull;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Tells whether nothing on this connection waits for its answer. */
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

  /** Has a request answered, whatever happens. */
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
      judgeHead(request);
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
      // An error thrown here would be unhandled and end the process, with everybody's requests.
      log.error({ requestId, err }, UNHANDLED);
      response.destroy();
    }
  }

  /** Answers what never became a request, after all that were sent before it on the same connection. */
  refuse(socket: Duplex, error: ApiError, ownId = newRequestId()): void {
    const { problems = false } = this.#options;
    const last = this.#latest.get(socket);
    if (last !== undefined && !last.response.req.complete) {
      const { response, requestId } = last;
      if (response.writableFinished) return void socket.destroy();
      // Another request's answer is half sent: ending the connection in order would make it look whole.
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
    // Each further read says so again.
    if (last.refused) return;
    last.refused = true;
    // Before Node's own listener, which ends the connection where the client has ended its side.
    last.response.prependOnceListener('finish', () => {
      if (last.response.shouldKeepAlive) write();
    });
  }
}

/** Checks what HTTP/1.1 asks of every request, whatever its path (RFC 9110 §10.1.1, RFC 9112 §3.2). */
function judgeHead({ headers, httpVersion }: IncomingMessage): void {
  if (httpVersion !== '1.1') return;
  if (headers.host === undefined) throw new ApiError('BAD_REQUEST', 'Host: required');
  if (headers.expect !== undefined && headers.expect.toLowerCase() !== '100-continue') {
    throw new ApiError('EXPECTATION_FAILED', 'Expect: only 100-continue is understood');
  }
}
