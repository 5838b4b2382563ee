// The entry `keyfence/express` of the package.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ValidKey } from '../library/key-verifier.ts';
import { createGuard, type Passage, Refusal } from './guard.ts';
import type { GuardOptions } from './guard-options.ts';
import { removeIdentity } from './header-lines.ts';

export type { KeyVerifier, ValidKey } from '../library/key-verifier.ts';
export type { GuardOptions } from './guard-options.ts';

declare global {
  namespace Express {
    interface Request {
      /** The key that let the request pass; undefined if the route has no guard before it. */
      apiKey?: ValidKey;
    }
  }
}

/** A request to a guarded application. */
export interface ExpressRequest extends IncomingMessage {
  apiKey?: ValidKey;
  /** Path and query as the client sent them, wherever a router is mounted. */
  originalUrl?: string;
  /** The client's address, by the setting `trust proxy`. */
  ip?: string | undefined;
  /** The id that loggers such as pino-http give a request. */
  id?: unknown;
}

/** A middleware of Express 5. */
export type ExpressGuard<R extends ExpressRequest = ExpressRequest> = (
  request: R,
  response: ServerResponse,
  next: () => void,
) => void;

/** Guards all routes that are mounted after it: calls `next` only if the request has a valid key. */
export function keyfence<R extends ExpressRequest = ExpressRequest>(
  options: GuardOptions<R>,
): ExpressGuard<R> {
  const guard = createGuard(options);
  return (request, response, next) => {
    removeIdentity(request);
    const { rawHeaders, originalUrl, url = '', id } = request;
    const clientIp = request.ip ?? request.socket?.remoteAddress;
    const target = originalUrl ?? url;
    const passage = guard.check({ rawHeaders, target, request, clientIp, carrier: request, id });
    if (passage instanceof Promise)
      void passage.then((latePassage) => settle(request, response, latePassage, next));
    else settle(request, response, passage, next);
  };
}

function settle(request: ExpressRequest, response: ServerResponse, passage: Passage, next: () => void): void {
  if (!(passage instanceof Refusal)) {
    request.apiKey = passage;
    next();
    return;
  }
  // The application may have answered during the look-up.
  if (response.headersSent) return;
  const { status, headers, body } = passage;
  for (const [name, value] of headers) response.setHeader(name, value);
  response.writeHead(status, { 'Content-Length': Buffer.byteLength(body) }).end(body);
}
