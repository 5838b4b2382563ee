import { lastPayment } from './paid-requests.ts';

/** A connection that `endWithKey` can end: a response, a socket, or a WebSocket of `ws`. */
export type EndableConnection = Endable & {
  once(event: 'close', listener: () => void): unknown;
};

type Endable =
  | { readonly destroyed?: boolean; destroy(): unknown }
  | { readonly readyState: number; close(code: number, reason: string): void; terminate(): void };

/**
 * Watches the key with which a request passed a guard. Returns a signal that aborts with a `WatchError` when
 * the key is no longer good. The watch ends when `signal` aborts.
 * Throws an Error if no guard let the request pass with a key.
 */
export function watchCarrier(carrier: object, signal: AbortSignal): AbortSignal {
  const payment = lastPayment(carrier);
  if (payment === undefined) throw new Error('no guard of keyfence let this request pass with a key');
  return payment.watch(signal);
}

/** Ends a connection when the key of its request is no longer good. Throws like `watchCarrier`. */
export function endCarrier(carrier: object, connection: EndableConnection): void {
  const closed = new AbortController();
  const watch = watchCarrier(carrier, closed.signal);
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
