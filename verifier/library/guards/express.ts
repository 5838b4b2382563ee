// The entry `keyfence/express` of the package.
import type { Request, RequestHandler } from 'express';
import { createGuard } from './guard.ts';
import type { GuardOptions, PassedKey } from './guard-options.ts';
import { clientIpOf, connectGuard } from './http-guard.ts';

export type { KeyVerifier, ValidKey } from '../key-verifier.ts';
export type { GuardOptions, OwnRefusal, PassedKey, RefusalNotice } from './guard-options.ts';
export { type EndableConnection, endWithKey, type PassedRequest, watchKey } from './long-requests.ts';
export { RefusedError } from './refusal.ts';

declare global {
  namespace Express {
    interface Request {
      /**
       * The key that let the request pass. Only behind a guard that is not `optional`: elsewhere use
       * `optionalKey`.
       */
      apiKey: PassedKey;
    }
  }
}

/**
 * Guards all routes that are mounted after it, in Express 4 and 5: calls `next` only if the request has a
 * valid key.
 */
export function keyfence(options: GuardOptions<Request>): RequestHandler {
  return connectGuard(
    createGuard(options, clientIpOf as (request: Request) => string | undefined),
  ) as RequestHandler;
}

/** Returns the key that let the request pass; undefined = there was no guard, or it was optional. */
export const optionalKey = (request: { readonly apiKey?: PassedKey }): PassedKey | undefined =>
  request.apiKey;
