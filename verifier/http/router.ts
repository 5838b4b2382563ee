import type { IncomingMessage, ServerResponse } from 'node:http';
import { ApiError } from '#shared/contract/errors.ts';

/**
 * A function that answers one request. If it throws or rejects, the client gets the error in the contract's
 * form: an ApiError as such, anything else as 500. `X-Request-Id` and `Cache-Control: no-store` are already
 * set.
 */
export type Handler = (
  request: IncomingMessage,
  response: ServerResponse,
  requestId: string,
  events: RequestEvents,
) => void | Promise<void>;

/** Callbacks that a handler may set for its request. */
export interface RequestEvents {
  /**
   * Called when the response is closed, whether it was sent or not. Replaces a second listener on `close`:
   * with two listeners nearly every response survives its scavenges, which then take 10 times as long (Node
   * 24).
   */
  onClose: (() => void) | undefined;
}

/** The paths of a listener and their handlers. */
export interface Routes {
  /** Handlers by complete path, then by method. Any other method gets 405. */
  readonly exact: Readonly<Record<string, Readonly<Record<string, Handler>>>>;
  /**
   * Handlers by the beginning of a path, for every method. The first match is used if no complete path
   * matches.
   */
  readonly below: readonly (readonly [prefix: string, handler: Handler])[];
}

/** Creates a handler that chooses the handler of each request by its path, without the query. */
export function createRouter({ exact, below }: Routes): Handler {
  const paths = new Map(Object.entries(exact));
  return (request, response, requestId, events) => {
    const [path = ''] = (request.url ?? '').split('?', 1);
    const methods = paths.get(path);
    const handler =
      methods === undefined
        ? below.find(([prefix]) => path.startsWith(prefix))?.[1]
        : methods[request.method ?? ''];
    if (handler !== undefined) return handler(request, response, requestId, events);
    if (methods === undefined) throw new ApiError('NOT_FOUND', 'no such path');
    const names = Object.keys(methods).join(', ');
    response.setHeader('Allow', names);
    throw new ApiError('METHOD_NOT_ALLOWED', `this path accepts only ${names}`);
  };
}
