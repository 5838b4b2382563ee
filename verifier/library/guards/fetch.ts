// The entry `keyfence/fetch` of the package, for handlers of the Fetch API on Node.
import type { ValidKey } from '../key-verifier.ts';
import { allowanceHeaders, createGuard, type Passage } from './guard.ts';
import type { GuardOptions } from './guard-options.ts';
import { Refusal } from './refusal.ts';
import { isIdentity } from './rules.ts';

export type { KeyVerifier, ValidKey } from '../key-verifier.ts';
export type { GuardOptions, OwnRefusal, RefusalNotice } from './guard-options.ts';
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
export interface FetchGuard<Key = ValidKey> {
  /** Checks a request, as in a loader of Remix or React Router, or in the context of tRPC. */
  check(request: Request): Promise<Checked<Key>>;
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
): FetchGuard<ValidKey | undefined>;
/** Creates the guard. */
export function keyfence(options: GuardOptions<Request>): FetchGuard;
/** Creates the guard. */
export function keyfence(options: GuardOptions<Request>): FetchGuard<ValidKey | undefined> {
  const guard = createGuard(options, () => undefined);
  const check = async (request: Request): Promise<Checked<ValidKey | undefined>> => {
    removeIdentityFrom(request.headers);
    const passage: Passage = await guard.check({
      rawHeaders: linesOf(request.headers),
      target: request.url,
      request,
      carrier: request,
      id: undefined,
    });
    if (passage instanceof Refusal) return { refusal: passage.response() };
    const lines = (passage && allowanceHeaders(passage)) ?? [];
    return { apiKey: passage, headers: Object.fromEntries(lines) };
  };
  return {
    check,
    handler:
      (handle) =>
      async (request, ...more) => {
        const { apiKey, refusal, headers } = (await check(request)) as PossiblyRefused;
        if (refusal !== undefined) return refusal;
        const response = await handle(request, apiKey, ...more);
        return withHeaders(response, headers);
      },
  };
}

/**
 * Returns the header lines, with their names. `Headers` joins repeated lines by a comma and a space, so a key
 * that contains these counts as two.
 */
const linesOf = (headers: Headers): string[] =>
  [...headers].flatMap(([name, value]) => value.split(', ').flatMap((line) => [name, line]));

interface PossiblyRefused {
  readonly apiKey: ValidKey | undefined;
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
