// The entry `keyfence/fetch` of the package, for handlers of the Fetch API on Node.
import { allowanceHeaders, createGuard, type Passage } from './guard.ts';
import type { GuardOptions, PassedKey } from './guard-options.ts';
import { Refusal } from './refusal.ts';
import { type Ending, ResponseEnd } from './request-holds.ts';
import { isIdentity } from './rules.ts';

export type { KeyVerifier, ValidKey } from '../key-verifier.ts';
export type { GuardOptions, OwnRefusal, PassedKey, RefusalNotice } from './guard-options.ts';
export { type PassedRequest, watchKey } from './long-requests.ts';
export { RefusedError } from './refusal.ts';

/** The outcome of a check: either the key, or the response that refuses the request. */
export type Checked<Key> =
  | {
      readonly apiKey: Key;
      readonly refusal?: undefined;
      /** Headers for the response: what the key has left. */
      readonly headers: Readonly<Record<string, string>>;
    }
  | { readonly apiKey?: undefined; readonly refusal: Response };

/** A guard of requests of the Fetch API. `Key` is undefined too if the guard is `optional`. */
export interface FetchGuard<Key = PassedKey> {
  /**
   * Checks a request, as in a loader of Remix or React Router, or in the context of tRPC. Holds the key until `signal`
   * aborts: abort it when the response has ended. Without it, the request takes no place in concurrency limits.
   */
  check(request: Request, signal?: AbortSignal): Promise<Checked<Key>>;
  /**
   * Returns a handler that runs only for requests with a valid key, as in a route handler of Next.js. Further
   * arguments are passed on.
   */
  handler<R extends Request, More extends readonly unknown[]>(
    handle: (request: R, apiKey: Key, ...more: More) => Response | Promise<Response>,
  ): (request: R, ...more: More) => Promise<Response>;
}

/**
 * Creates a guard. A Fetch request does not say which connection it came by, so keys with `allowedIps` are
 * refused unless the option `clientIp` tells the client's address. Throws a TypeError that names every wrong
 * option.
 */
export function keyfence(
  options: GuardOptions<Request> & { readonly optional: true },
): FetchGuard<PassedKey | undefined>;
/** Creates the guard. */
export function keyfence(options: GuardOptions<Request>): FetchGuard;
/** Creates the guard. */
export function keyfence(options: GuardOptions<Request>): FetchGuard<PassedKey | undefined> {
  const guard = createGuard(options, () => undefined);
  const check = async (request: Request, ending?: Ending): Promise<Checked<PassedKey | undefined>> => {
    removeIdentityFrom(request.headers);
    const passage: Passage = await guard.check({
      rawHeaders: linesOf(request.headers),
      target: request.url,
      request,
      carrier: request,
      ending,
      id: undefined,
    });
    if (passage instanceof Refusal) return { refusal: passage.response() };
    const lines = (passage && allowanceHeaders(passage)) ?? [];
    return { apiKey: passage, headers: Object.fromEntries(lines) };
  };
  return {
    check: (request, signal) => check(request, signal && endingOf(signal)),
    handler:
      (handle) =>
      async (request, ...more) => {
        const end = new ResponseEnd(request);
        const { apiKey, refusal, headers } = (await check(request, end)) as PossiblyRefused;
        if (refusal !== undefined) return refusal;
        try {
          return end.watch(withHeaders(await handle(request, apiKey, ...more), headers));
        } catch (error) {
          end.end();
          throw error;
        }
      },
  };
}

const endingOf = (signal: AbortSignal): Ending => ({
  destroyed: signal.aborted,
  once: (_event, listener) => signal.addEventListener('abort', listener, { once: true }),
});

/**
 * Returns the header lines, with their names. `Headers` joins repeated lines by a comma and a space, so a key
 * that contains these counts as two. It joins those of `Cookie` by a semicolon, as in one line.
 */
const linesOf = (headers: Headers): string[] =>
  [...headers].flatMap(([name, value]) =>
    name === 'cookie' ? [name, value] : value.split(', ').flatMap((line) => [name, line]),
  );

interface PossiblyRefused {
  readonly apiKey: PassedKey | undefined;
  readonly refusal?: Response;
  readonly headers: Readonly<Record<string, string>>;
}

/** Adds headers to a response. Those of a response from `fetch` cannot be changed, so that one is copied. */
function withHeaders(response: Response, headers: Readonly<Record<string, string>>): Response {
  const entries = Object.entries(headers);
  if (entries.length === 0) return response;
  try {
    for (const [name, value] of entries) response.headers.set(name, value);
    return response;
  } catch {
    const copy = new Response(response.body, response);
    for (const [name, value] of entries) copy.headers.set(name, value);
    return copy;
  }
}

/**
 * Removes the headers with which gateways tell an API whose key it was, as far as the request's headers can
 * be changed.
 */
function removeIdentityFrom(headers: Headers): void {
  const names = [...headers.keys()].filter(isIdentity);
  try {
    for (const name of names) headers.delete(name);
  } catch {
    // The headers of this request are immutable.
  }
}
