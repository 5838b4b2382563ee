import type { KeyVerifier, PermissionQuery } from '../library/key-verifier.ts';

/** The rules by which a request's key is found and judged. */
export interface RouteGuardOptions<R = unknown> {
  /** The API that a key must be of; left out = any that the verifier answers for. */
  readonly apiId?: string;
  /** Permissions that a key must have, 403 where it lacks one; left out = none. */
  readonly permissions?: PermissionQuery;
  /**
   * The places where a client may put its key, as CREDENTIAL_SOURCES; `['bearer', 'x-api-key']` where it is left out. A key
   * in two places, or two that differ, is refused.
   */
  readonly sources?: readonly ('bearer' | 'x-api-key' | 'query')[];
  /**
   * Credits that a request costs, where its key has any; 1 where it is left out, 0 only looks. A function is asked for a
   * request that has a key, before its body is read; what it throws is the framework's to answer.
   */
  readonly cost?: number | ((request: R) => number);
}

/** The verifier that decides, one of `verifier`, `url` and `unixSocket`, and the rules. */
export interface GuardOptions<R = unknown> extends RouteGuardOptions<R> {
  /** One of `createVerifier` or `createClient`, which the application closes. */
  readonly verifier?: KeyVerifier;
  /** Address of a sidecar. */
  readonly url?: string;
  /** The sidecar's LISTEN_UNIX. */
  readonly unixSocket?: string;
}
