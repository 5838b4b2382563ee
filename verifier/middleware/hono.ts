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

/** Guards what is registered after it, on Node: without a good key no handler runs. */
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
      carrier: incoming ?? context.req.raw,
      // By Hono's own middleware.
      id: (context as Context).get('requestId'),
    });
    return passage instanceof Promise
      ? passage.then((latePassage) => settle(context, incoming, rawHeaders, latePassage, next))
      : settle(context, incoming, rawHeaders, passage, next);
  };
}

/** Node's request, which has each header line by itself; `Request` joins those of one name, which then are no key. */
function incomingOf({ env }: Context): Incoming | undefined {
  const { incoming } = Object(env) as { incoming?: Partial<Incoming> };
  return Array.isArray(incoming?.rawHeaders) ? (incoming as Incoming) : undefined;
}

/** Either of node:http and node:http2. */
interface Incoming extends WithHeaders {
  readonly url?: string;
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
  // Hono's own promise is of its context, which must not be taken for an answer.
  return next().then(toUndefined);
}

const toUndefined = () => undefined;

function answer({ status, headers, body }: Refusal): Response {
  return new Response(body, { status, headers: headers.map(([name, value]) => [name, value]) });
}
