import type { KeyVerifier, PermissionQuery } from '../library/key-verifier.ts';

/** The rules by which a guard finds and checks the key of a request. */
export interface RouteGuardOptions<R = unknown> {
  /** The API to which a key must belong; default: any API that the verifier answers for. */
  readonly apiId?: string;
  /** Permissions that a key must have; a key that lacks one gets 403. Default: none. */
  readonly permissions?: PermissionQuery;
  /**
   * The places where a client may put its key, as in CREDENTIAL_SOURCES; default `['bearer', 'x-api-key']`. A
   * request with one key in two places, or with two different keys, is refused.
   */
  readonly sources?: readonly ('bearer' | 'x-api-key' | 'query')[];
  /**
   * Returns the address of the client, for keys with `allowedIps`; undefined = unknown, and such keys are refused.
   * Default: the framework's own (`request.ip` of Express and Fastify, which obey their settings for trusted proxies),
   * else that of the connection. Never return what a client can write.
   */
  readonly clientIp?: (request: R) => string | undefined;
  /**
   * Credits that a request costs, if its key has credits. Default 1; 0 checks without spending. A function is
   * called for each request that has a key, before the request's body is read. Errors that the function
   * throws are left to the framework.
   */
  readonly cost?: number | ((request: R) => number);
}

/** Exactly one of `verifier`, `url` and `unixSocket`, and the rules. */
export interface GuardOptions<R = unknown> extends RouteGuardOptions<R> {
  /** A verifier from `createVerifier` or `createClient`. The application closes it. */
  readonly verifier?: KeyVerifier;
  /** Address of a sidecar. */
  readonly url?: string;
  /** The sidecar's LISTEN_UNIX. */
  readonly unixSocket?: string;
}
