// The entry `keyfence/koa` of the package.
import type { Context, Middleware } from 'koa';
import { allowanceHeaders, createGuard, type Passage } from './guard.ts';
import type { GuardOptions, PassedKey } from './guard-options.ts';
import { Refusal } from './refusal.ts';
import { removeIdentity } from './rules.ts';

export type { KeyVerifier, ValidKey } from '../key-verifier.ts';
export type { GuardOptions, OwnRefusal, PassedKey, RefusalNotice } from './guard-options.ts';
export { type EndableConnection, endWithKey, type PassedRequest, watchKey } from './long-requests.ts';
export { RefusedError } from './refusal.ts';

/** The state of a guarded request: `new Koa<KeyfenceState>()`. */
export interface KeyfenceState {
  /** The key that let the request pass. Behind an `optional` guard it may be undefined. */
  apiKey: PassedKey;
}

/** Guards all middleware that is used after it: no handler runs without a valid key. */
export function keyfence(options: GuardOptions<Context>): Middleware<KeyfenceState> {
  const guard = createGuard(options, ({ ip }) => ip);
  return async (context, next) => {
    const { req, originalUrl } = context;
    removeIdentity(req);
    const passage: Passage = await guard.check({
      rawHeaders: req.rawHeaders,
      target: originalUrl,
      request: context as object as Context,
      carrier: req,
      ending: context.res,
      // Set by loggers and request-id middleware.
      id: (context.state as { reqId?: unknown }).reqId ?? (req as { id?: unknown }).id,
    });
    if (passage instanceof Refusal) {
      context.status = passage.status;
      context.body = passage.body;
      for (const [name, value] of passage.headers) context.set(name, value);
      return;
    }
    if (passage !== undefined) {
      context.state.apiKey = passage;
      for (const [name, value] of allowanceHeaders(passage) ?? []) context.set(name, value);
    }
    await next();
  };
}
