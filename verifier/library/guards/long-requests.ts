import type { IncomingMessage } from 'node:http';
import { lastPayment } from './guard.ts';

/** A connection that `endWithKey` can end: a response, a socket, or a WebSocket of `ws`. */
export type EndableConnection = Endable & {
  once(event: 'close', listener: () => void): unknown;
};

type Endable =
  | { readonly destroyed?: boolean; destroy(): unknown }
  | { readonly readyState: number; close(code: number, reason: string): void; terminate(): void };

/**
 * A request that passed a guard: of node:http or Express; of Fastify or NestJS; the context of Koa; or a
 * `Request` of the Fetch API.
 */
export type PassedRequest = IncomingMessage | Request | { readonly raw: object } | { readonly req: object };

/**
 * Watches the key with which a request passed a guard. The returned signal aborts, with a `WatchError`, within
 * a second after a change that makes the key no longer good is complete. The watch ends when `signal` aborts:
 * abort it when the request is over. (The own signal of a Fetch request aborts only if the client goes away.)
 * Throws an Error if no guard let the request pass with a key.
 */
export function watchKey(request: PassedRequest, signal: AbortSignal): AbortSignal {
  const { raw, req } = request as { raw?: object; req?: object };
  const payment = lastPayment(raw ?? req ?? request);
  if (payment === undefined) throw new Error('no guard of keyfence let this request pass with a key');
  return payment.watch(signal);
}

/**
 * Ends a response, a socket, or a WebSocket of `ws` or `@fastify/websocket`, when the key of its request is no
 * longer good, within a second after the change is complete. A WebSocket gets the close code 1008. Throws like
 * `watchKey`.
 */
export function endWithKey(request: PassedRequest, connection: EndableConnection): void {
  const closed = new AbortController();
  const watch = watchKey(request, closed.signal);
  // One that is closed already says so no more.
  if (isClosed(connection)) closed.abort();
  else connection.once('close', () => closed.abort());
  if (watch.aborted) end(connection);
  else watch.addEventListener('abort', () => end(connection), { once: true });
}

function end(connection: Endable): void {
  if (!('terminate' in connection)) {
    connection.destroy();
    return;
  }
  connection.close(POLICY_VIOLATION, 'the API key is no longer valid');
  // The peer may go on sending instead of closing. Its last turn is the close frame.
  setImmediate(() => connection.terminate());
}

const isClosed = (connection: Endable): boolean =>
  'terminate' in connection ? connection.readyState === CLOSED : connection.destroyed === true;

/** The ready state of a WebSocket. */
const CLOSED = 3;
/** RFC 6455, 7.4.1. */
const POLICY_VIOLATION = 1008;
