import type { IncomingMessage, ServerResponse } from 'node:http';
import { ApiError } from '#shared/contract/errors.ts';

/**
 * Answers one request. What it throws or rejects with is answered in the contract's error shape: an ApiError as
 * itself, anything else as 500. `X-Request-Id` and `Cache-Control: no-store` are set already.
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
   * Called when the response is closed, sent or not. In place of a listener of its own: with two of them on `close`,
   * nearly every response survives its scavenges, which then take 10 times as long (Node 24).
   */
  onClose: (() => void) | undefined;
}

/** The paths of a listener and their handlers. */
export interface Routes {
  /** By whole path, then by method: another method is 405. */
  readonly exact: Readonly<Record<string, Readonly<Record<string, Handler>>>>;
  /** By how a path begins, whatever the method; the first that fits, where no whole path does. */
  readonly below: readonly (readonly [prefix: string, handler: Handler])[];
}

/** Finds who answers a request. The query plays no part. */
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
    throw new ApiError('METHOD_NOT_ALLOWED', `this path takes ${names} only`);
  };
}
