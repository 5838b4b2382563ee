// The entry `keyfence/koa` of the package.
import type { Context, Middleware } from 'koa';
import type { ValidKey } from '../library/key-verifier.ts';
import { allowanceHeaders } from './guard/answers.ts';
import { createGuard, type Passage } from './guard/guard.ts';
import type { GuardOptions } from './guard/guard-options.ts';
import { removeIdentity } from './guard/header-lines.ts';
import { type EndableConnection, endCarrier, watchCarrier } from './guard/long-requests.ts';
import { Refusal } from './guard/refusal.ts';

export type { KeyVerifier, ValidKey } from '../library/key-verifier.ts';
export type { GuardOptions, OwnRefusal, RefusalNotice } from './guard/guard-options.ts';
export type { EndableConnection } from './guard/long-requests.ts';
export { RefusedError } from './guard/refusal.ts';

/** The state of a guarded request: `new Koa<KeyfenceState>()`. */
export interface KeyfenceState {
  /** The key that let the request pass. Behind an `optional` guard it may be undefined. */
  apiKey: ValidKey;
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

/**
 * Watches the key with which a request passed a guard. The returned signal aborts, with a `WatchError`, within
 * a second after a change that makes the key no longer good is complete. The watch ends when `signal` aborts.
 * Throws an Error if no guard let the request pass with a key.
 */
export const watchKey = ({ req }: Pick<Context, 'req'>, signal: AbortSignal): AbortSignal =>
  watchCarrier(req, signal);

/**
 * Ends a response (`context.res`), a socket or a WebSocket of `ws` when the key of its request is no longer
 * good, within a second after the change is complete. Throws like `watchKey`.
 */
export const endWithKey = ({ req }: Pick<Context, 'req'>, connection: EndableConnection): void =>
  endCarrier(req, connection);
