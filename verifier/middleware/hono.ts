// The entry `keyfence/hono` of the package.
import { IncomingMessage } from 'node:http';
import type { Context, MiddlewareHandler } from 'hono';
import type { ValidKey } from '../library/key-verifier.ts';
import { createGuard, type Passage } from './guard.ts';
import type { GuardOptions } from './guard-options.ts';
import { isIdentity, removeIdentity } from './header-lines.ts';

export type { KeyVerifier, ValidKey } from '../library/key-verifier.ts';
export type { GuardOptions } from './guard-options.ts';

/** The variables that a guarded handler finds in its context. */
export interface KeyfenceVariables {
  /** The key that let the request pass. */
  apiKey: ValidKey;
}

/** Guards what is registered after it, on Node: without a good key no handler runs. */
export function keyfence(options: GuardOptions): MiddlewareHandler<{ Variables: KeyfenceVariables }> {
  const guard = createGuard(options);
  return async (context, next) => {
    const incoming = incomingOf(context);
    const { method, url, raw } = context.req;
    const rawHeaders = incoming?.rawHeaders ?? [...raw.headers].flat();
    const passage = await guard.check({ method, target: url, rawHeaders });
    if ('refusal' in passage) return answer(passage.refusal);
    if (rawHeaders.some((name, i) => i % 2 === 0 && isIdentity(name))) {
      for (const name of [...raw.headers.keys()]) if (isIdentity(name)) raw.headers.delete(name);
      if (incoming) removeIdentity(incoming);
    }
    context.set('apiKey', passage.key);
    await next();
    return undefined;
  };
}

/** Node's request, which has each header line by itself; `Request` joins those of one name, which then are no key. */
function incomingOf({ env }: Context): IncomingMessage | undefined {
  const { incoming } = Object(env) as { incoming?: unknown };
  return incoming instanceof IncomingMessage ? incoming : undefined;
}

function answer({ status, headers, body }: Extract<Passage, { refusal: unknown }>['refusal']): Response {
  return new Response(body, { status, headers: headers.map(([name, value]) => [name, value]) });
}
