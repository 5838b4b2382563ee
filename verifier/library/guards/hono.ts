// The entry `keyfence/hono` of the package.
import type { ServerResponse } from 'node:http';
import type { Context, MiddlewareHandler, Next } from 'hono';
import { allowanceHeaders, createGuard, type Passage } from './guard.ts';
import type { GuardOptions, PassedKey } from './guard-options.ts';
import { watchKey as watchRequest } from './long-requests.ts';
import { Refusal } from './refusal.ts';
import { ResponseEnd } from './request-holds.ts';
import { hasIdentity, isIdentity, removeIdentity, type WithHeaders } from './rules.ts';

export type { KeyVerifier, ValidKey } from '../key-verifier.ts';
export type { GuardOptions, OwnRefusal, PassedKey, RefusalNotice } from './guard-options.ts';
export { RefusedError } from './refusal.ts';

/** The variables that a guarded handler finds in its context. */
export interface KeyfenceVariables {
  /** The key that let the request pass. */
  apiKey: PassedKey;
}

/**
 * Guards all routes registered after it, on Node: no handler runs without a valid key. Behind an `optional`
 * guard, `apiKey` may be undefined.
 */
export function keyfence(
  options: GuardOptions<Context> & { readonly optional: true },
): MiddlewareHandler<{ Variables: Partial<KeyfenceVariables> }>;
/** Creates the guard. */
export function keyfence(options: GuardOptions<Context>): MiddlewareHandler<{ Variables: KeyfenceVariables }>;
/** Creates the guard. */
export function keyfence(options: GuardOptions<Context>): MiddlewareHandler {
  const guard = createGuard(options, (context) => incomingOf(context)?.socket?.remoteAddress);
  return (context, next) => {
    const incoming = incomingOf(context);
    const outgoing = outgoingOf(context);
    const end = new ResponseEnd(context.req.raw);
    const rawHeaders = incoming?.rawHeaders ?? [...context.req.raw.headers].flat();
    const passage = guard.check({
      rawHeaders,
      target: incoming?.url ?? context.req.url,
      request: context,
      carrier: incoming ?? context.req.raw,
      ending: outgoing ?? end,
      // Set by Hono's own request-id middleware.
      id: (context as Context).get('requestId'),
    });
    // Without Node's response, the end of the body is that of the response.
    const proceed = outgoing ? next : () => passWatched(context, end, next);
    return passage instanceof Promise
      ? passage.then((latePassage) => applyPassage(context, incoming, rawHeaders, latePassage, proceed))
      : applyPassage(context, incoming, rawHeaders, passage, proceed);
  };
}

async function passWatched(context: Context, end: ResponseEnd, next: Next): Promise<void> {
  try {
    await next();
  } catch (error) {
    end.end();
    throw error;
  }
  const { res } = context;
  const response = end.watch(res);
  if (response !== res) context.res = response;
}

/**
 * Returns Node's own request, which keeps repeated header lines apart. Hono's `Request` joins them into one
 * value, which would then be no key.
 */
function incomingOf({ env }: Context): Incoming | undefined {
  const { incoming } = Object(env) as { incoming?: Partial<Incoming> };
  return Array.isArray(incoming?.rawHeaders) ? (incoming as Incoming) : undefined;
}

/** A request of node:http or node:http2. */
interface Incoming extends WithHeaders {
  readonly url?: string;
  readonly socket?: { readonly remoteAddress?: string | undefined };
}

function applyPassage(
  context: Context<{ Variables: KeyfenceVariables }>,
  incoming: Incoming | undefined,
  rawHeaders: readonly string[],
  passage: Passage,
  next: Next,
): Promise<Response | undefined> {
  if (passage instanceof Refusal) return Promise.resolve(passage.response());
  if (hasIdentity(rawHeaders)) {
    const { headers } = context.req.raw;
    for (const name of [...headers.keys()]) if (isIdentity(name)) headers.delete(name);
    if (incoming) removeIdentity(incoming);
  }
  if (passage !== undefined) {
    context.set('apiKey', passage);
    const lines = allowanceHeaders(passage);
    if (lines !== undefined) {
      // Afterwards, because a handler may return a response of its own.
      return next().then(() => {
        for (const [name, value] of lines) context.header(name, value);
        return undefined;
      });
    }
  }
  // Hono's promise resolves with its context, which must not be mistaken for a response.
  return next().then(toUndefined);
}

const toUndefined = () => undefined;

/**
 * Watches the key with which a request passed a guard, as for `streamSSE`. The returned signal aborts, with a
 * `WatchError`, within a second after a change that makes the key no longer good is complete. The watch ends
 * when `signal` aborts; default: at the end of the response. Throws an Error if no guard let the request pass
 * with a key.
 */
export const watchKey = (context: Context, signal: AbortSignal = endOf(context)): AbortSignal =>
  watchRequest({ raw: incomingOf(context) ?? context.req.raw }, signal);

/** Returns Node's own response. */
const outgoingOf = ({ env }: Context) => (Object(env) as { outgoing?: ServerResponse }).outgoing;

/** Returns a signal that aborts when Node's response is over, or without one, when the client goes away. */
function endOf(context: Context): AbortSignal {
  const outgoing = outgoingOf(context);
  if (outgoing === undefined) return context.req.raw.signal;
  const over = new AbortController();
  if (outgoing.destroyed) over.abort();
  else outgoing.once('close', () => over.abort());
  return over.signal;
}
