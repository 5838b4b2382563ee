// The entry `keyfence/hono` of the package.
import type { Context, MiddlewareHandler, Next } from 'hono';
import type { ValidKey } from '../library/key-verifier.ts';
import { createGuard, type Passage, Refusal } from './guard.ts';
import type { GuardOptions } from './guard-options.ts';
import { hasIdentity, isIdentity, removeIdentity, type WithHeaders } from './header-lines.ts';

export type { KeyVerifier, ValidKey } from '../library/key-verifier.ts';
export type { GuardOptions } from './guard-options.ts';

/** The variables that a guarded handler finds in its context. */
export interface KeyfenceVariables {
  /** The key that let the request pass. */
  apiKey: ValidKey;
}

/** Guards all routes registered after it, on Node: no handler runs without a valid key. */
export function keyfence(
  options: GuardOptions<Context>,
): MiddlewareHandler<{ Variables: KeyfenceVariables }> {
  const guard = createGuard(options);
  return (context, next) => {
    const incoming = incomingOf(context);
    const rawHeaders = incoming?.rawHeaders ?? [...context.req.raw.headers].flat();
    const passage = guard.check({
      rawHeaders,
      target: incoming?.url ?? context.req.url,
      request: context,
      clientIp: incoming?.socket?.remoteAddress,
      carrier: incoming ?? context.req.raw,
      // Set by Hono's own request-id middleware.
      id: (context as Context).get('requestId'),
    });
    return passage instanceof Promise
      ? passage.then((latePassage) => settle(context, incoming, rawHeaders, latePassage, next))
      : settle(context, incoming, rawHeaders, passage, next);
  };
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

function settle(
  context: Context<{ Variables: KeyfenceVariables }>,
  incoming: Incoming | undefined,
  rawHeaders: readonly string[],
  passage: Passage,
  next: Next,
): Promise<Response | undefined> {
  if (passage instanceof Refusal) return Promise.resolve(answer(passage));
  if (hasIdentity(rawHeaders)) {
    const { headers } = context.req.raw;
    for (const name of [...headers.keys()]) if (isIdentity(name)) headers.delete(name);
    if (incoming) removeIdentity(incoming);
  }
  context.set('apiKey', passage);
  // Hono's promise resolves with its context, which must not be mistaken for a response.
  return next().then(toUndefined);
}

const toUndefined = () => undefined;

function answer({ status, headers, body }: Refusal): Response {
  return new Response(body, { status, headers: headers.map(([name, value]) => [name, value]) });
}
