import type { IncomingMessage } from 'node:http';
import type {
  AskedRateLimit,
  Costs,
  KeyVerifier,
  PermissionQuery,
  RefusedKey,
  UnknownKey,
  ValidKey,
} from '../key-verifier.ts';

/** The rules by which a guard finds and checks the key of a request. `R` is the framework's request. */
export interface RouteGuardOptions<R = unknown> {
  /**
   * The API to which a key must belong, or `'*'` for any for which the verifier answers. Required, unless `verifier` has
   * `apiIds`.
   */
  readonly apiId?: string;
  /**
   * Permissions that a key must have; a key that lacks one gets 403. Default: none. A function is called for each request that
   * has a key; undefined = the request needs none.
   */
  readonly permissions?: PermissionQuery | ((request: R) => PermissionQuery | undefined);
  /** URL of the API's metadata as a protected resource (RFC 9728), which each 401 names. Default: none. */
  readonly resourceMetadata?: string;
  /**
   * The places where a client may put its key: those of CREDENTIAL_SOURCES, with headers of your own, whose whole
   * value is the key, and cookies. Default `['bearer', 'x-api-key']`. A request that uses one place twice, or has two
   * different keys, is refused.
   */
  readonly sources?: readonly (
    | 'bearer'
    | 'x-api-key'
    | 'query'
    | 'basic'
    | { readonly header: string }
    | { readonly cookie: string }
  )[];
  /**
   * Returns the address of the client, for keys with `allowedIps`; undefined = unknown, and such keys are refused.
   * Default: the framework's own (`request.ip` of Express and Fastify, which obey their settings for trusted proxies),
   * else that of the connection. Never return what a client can write.
   */
  readonly clientIp?: (request: R) => string | undefined;
  /**
   * Credits that a request costs, if its key has credits. Default 1; 0 checks without spending. A function is
   * called for each request that has a key, before the request's body is read. Errors that the function
   * throws are left to the framework; so are those of the other functions here.
   */
  readonly cost?: number | ((request: R) => number);
  /**
   * Credits to reserve for a request whose cost is known only at its end, in place of `cost`; or amounts of rate limits by
   * their names, such as `{ tokens: 5000 }`, and `credits` among them; or a function, as there. A key without such a limit
   * passes. `charge` of the request's key says the cost.
   */
  readonly reserve?: number | Costs | ((request: R) => number | Costs);
  /**
   * Rule for the cost of a request whose client leaves before the response was sent, where the guard has `reserve`: `charge` = at
   * least what was reserved, `release` = nothing, `last` = what `charge` said last, else what was reserved. The last guard
   * of a request counts. Default `charge`.
   */
  readonly onAbort?: 'charge' | 'release' | 'last';
  /**
   * Time after which the hold of a request ends by itself, 1,000..3,600,000 milliseconds: it is charged in full, and
   * no longer counts in concurrency limits. Default 3,600,000.
   */
  readonly holdMs?: number;
  /**
   * Rate limits from which a request takes, besides those that always apply. A limit that the key does not
   * have is refused with 503, unless `limit` and `duration` define it.
   */
  readonly ratelimits?: readonly AskedRateLimit[] | ((request: R) => readonly AskedRateLimit[]);
  /** Names under which to count a request besides its key: at most 10, each of 1..128 characters. */
  readonly tags?: readonly string[] | ((request: R) => readonly string[]);
  /**
   * true = a request without any key passes, and has no `apiKey`. A request with a key that is not valid is
   * refused all the same. Default false.
   */
  readonly optional?: boolean;
  /**
   * Called for each request that the guard refuses, for a log or a metric. What it returns replaces parts of
   * the response.
   */
  readonly onRefused?:
    | ((refusal: RefusalNotice, request: R) => OwnRefusal | undefined)
    | ((refusal: RefusalNotice, request: R) => void);
  /**
   * true = a refusal is a `RefusedError` for the framework's error handler. Default false: the guard answers
   * itself.
   */
  readonly throwRefusals?: boolean;
}

/** The key with which a request passed a guard. */
export type PassedKey = ValidKey & {
  /** Only behind a guard with `reserve`: other guards add no function to the key. */
  readonly charge: Charge;
};

/**
 * Sets what a request costs, in credits, or by the names in `reserve`, such as `{ tokens: 1234 }`; the last call counts. It is
 * charged when the response ends, and by `onAbort` if the client leaves before; what it does not say costs what was reserved.
 * Returns false if the response has ended already, which nothing changes any more. Throws a TypeError unless these are whole
 * numbers, and of what a guard of the request reserves.
 */
export interface Charge {
  (cost: number | Costs): boolean;
  /** The same, but adds to what the request costs so far, as for a retry on another model. */
  add(cost: number | Costs): boolean;
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

/**
 * The reason why a request was refused: the verdict on its key. KEY_MISSING, KEY_AMBIGUOUS: it has no usable key.
 * SERVICE_UNAVAILABLE: there was no verdict.
 */
export type RefusedCode =
  | RefusedKey['code']
  | UnknownKey['code']
  | 'KEY_MISSING'
  | 'KEY_AMBIGUOUS'
  | 'SERVICE_UNAVAILABLE';

/** A request that a guard refuses. Nothing in it is secret. */
export interface RefusalNotice {
  readonly status: number;
  readonly code: RefusedCode;
  /** The key, if the verdict shows it. */
  readonly keyId?: string;
  /** The id in the response, and in the framework's own log if it has one. */
  readonly requestId: string;
}

/** The parts of a refusal that an application replaces. */
export interface OwnRefusal {
  /** 400..599; default: that of the refusal. */
  readonly status?: number;
  /** Headers that are added, or that replace those of the refusal. */
  readonly headers?: Readonly<Record<string, string>>;
  /** A text (`text/plain`, unless `headers` names another type), or an object that is sent as JSON. */
  readonly body?: string | object;
}

/** A request of node:http or node:http2, and what frameworks add to it. */
export interface GuardedRequest extends IncomingMessage {
  apiKey?: PassedKey | undefined;
  /** Path and query as the client sent them, wherever a router is mounted. */
  originalUrl?: string;
  /** The client's address, by the framework's settings. */
  ip?: string | undefined;
  /** The id that loggers such as pino-http give a request. */
  id?: unknown;
}
