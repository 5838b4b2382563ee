// A relative path, because the compilers of applications must find it too.
import type { ShownLimit } from '../../shared/protocol/records/limit.ts';
import type { RefusalCode, SilentCode } from '../../shared/rules/verdict-codes.ts';

/** A verdict on a key, as in the response of `keys.verifyKey`. */
export type KeyVerdict = ValidKey | RefusedKey | UnknownKey;

/** The data of a key that a verdict shows. */
export interface KnownKey {
  readonly keyId: string;
  readonly apiId: string;
  /** The JSON object that was set on the key; `{}` if none was set. */
  readonly meta: Readonly<Record<string, unknown>>;
  readonly name?: string;
  /** The customer's id in the caller's own system. */
  readonly externalId?: string;
  /** The same as `externalId`. */
  readonly ownerId?: string;
  readonly environment?: string;
  /**
   * Names of the key's effective permissions: its own, and those of its roles. Absent = no permission was
   * ever set.
   */
  readonly permissions?: readonly string[];
  /** Names of the key's roles; absent = none. */
  readonly roles?: readonly string[];
  /** The customer's identity; absent = none. */
  readonly identity?: { readonly id: string; readonly externalId: string; readonly meta: object };
  /** Unix milliseconds from which on the key is refused; absent = never. */
  readonly expires?: number;
  /** Credits left after this question. Absent = unlimited, or perhaps the key was refused for another reason. */
  readonly remaining?: number;
  /** The cost of a refused question that no wait makes fit: it is more than the limit, or than the credits left and a refill. */
  readonly needed?: number;
  /**
   * The limit that refuses the key, or else the default limit. Absent = the key has no limit, or was refused
   * for another reason.
   */
  readonly ratelimit?: { readonly limit: number; readonly remaining: number; readonly reset: number };
  /** All limits that applied to the question. */
  readonly ratelimits?: readonly LimitState[];
  /** All concurrency limits that applied to the question. */
  readonly concurrency?: readonly PlacesState[];
  /** The hold that the question asked for. With `atLeast` in it, also what it took: credits, and of rate limits. */
  readonly hold?: {
    readonly id: string;
    readonly expiresAt: number;
    readonly credits?: number;
    readonly ratelimits?: readonly HeldAmount[];
  };
}

/** An amount of a rate limit in a hold. */
interface HeldAmount {
  readonly name: string;
  readonly cost: number;
}

/** The state of a concurrency limit after a verification. */
export interface PlacesState {
  readonly name: string;
  /** The most requests that may run at once. */
  readonly limit: number;
  /** The places that are free. */
  readonly remaining: number;
  /** True if this limit is the reason why the key was refused. */
  readonly exceeded: boolean;
}

/** The state of a rate limit after a verification. */
export interface LimitState extends ShownLimit {
  readonly remaining: number;
  /** End of the current window, in Unix milliseconds. */
  readonly reset: number;
  /** True if this limit is the reason why the key was refused. */
  readonly exceeded: boolean;
}

/** The only verdict that allows a request. */
export interface ValidKey extends KnownKey {
  readonly valid: true;
  readonly code: 'VALID';
  readonly enabled: true;
}

/** A verdict that refuses a known key. */
export interface RefusedKey extends KnownKey {
  readonly valid: false;
  readonly code: RefusalCode;
  readonly enabled: boolean;
}

/**
 * A verdict without data of a key. FORBIDDEN: the key belongs to another API, or may not be used from the client's
 * address or web page. NOT_FOUND: no key has this secret.
 */
export interface UnknownKey {
  readonly valid: false;
  readonly code: SilentCode;
}

/** Permissions that a key must have: one name, all or any of several, or a text such as `a AND (b OR c)`. */
export type PermissionQuery =
  | string
  | { readonly and: readonly PermissionQuery[] }
  | { readonly or: readonly PermissionQuery[] };

/** The optional parts of a question about a key. */
export interface QuestionOptions {
  /** The API to which the key must belong; default: any API that the verifier answers for. */
  readonly apiId?: string;
  /**
   * Address of the client that presented the key, as this process itself knows it and not as the client says. A key
   * with `allowedIps` is refused without it.
   */
  readonly clientIp?: string;
  /**
   * The request's `Origin` header, or else its `Referer`, of which only the origin counts. A key with `allowedOrigins`
   * is refused without it.
   */
  readonly origin?: string;
  /**
   * Names under which to count the verdict besides its key: at most 10, each of 1..128 characters.
   * `apis.getVerifications` returns the counts.
   */
  readonly tags?: readonly string[];
  /** Credits that the request costs, if the key has credits. Default 1; 0 checks without spending. */
  readonly remaining?: { readonly cost?: number };
  /** Rate limits to apply besides those that always apply, at most 32. Name such a limit to change its cost. */
  readonly ratelimits?: readonly AskedRateLimit[];
  /** Permissions that the key must have. If it lacks one, the verdict is INSUFFICIENT_PERMISSIONS. */
  readonly permissions?: PermissionQuery;
  /** Begins a hold, which the caller must end with `release`. `KeyVerifier.hold` does both. */
  readonly hold?: {
    /** Credits to reserve, in place of `remaining.cost`. */
    readonly credits?: number;
    /** Reserves the credits that are there, but no less than this; default: all or nothing. */
    readonly atLeast?: number;
    /** Amounts of rate limits to reserve, at most 8, in place of what the request takes of them. */
    readonly ratelimits?: readonly (HeldAmount & { readonly atLeast?: number })[];
    /** Time after which the hold ends by itself and is charged in full, 1,000..3,600,000 ms; default 60,000. */
    readonly forMs?: number;
    /** True = no hold if there is nothing to release: no concurrency limit, and nothing reserved that the key has. */
    readonly onlyIfNeeded?: boolean;
  };
}

export interface HoldOptions extends Omit<QuestionOptions, 'hold' | 'remaining'> {
  /** Credits to reserve, if the key has credits; default 1. */
  readonly credits?: number;
  /** Reserves the credits that are there, but no less than this; default: all or nothing. `hold` of the verdict says how many. */
  readonly atLeast?: number;
  /** Amounts to reserve of rate limits by their names, such as `{ tokens: 5000 }` or `{ tokens: { cost: 5000, atLeast: 500 } }`, at most 8. */
  readonly reserve?: Readonly<Record<string, number | { readonly cost: number; readonly atLeast?: number }>>;
  /** Time after which the hold ends by itself and is charged in full, 1,000..3,600,000 ms; default 60,000. */
  readonly forMs?: number;
}

/** Amounts by the names of rate limits; in the cost of work, `credits` are credits. */
export type Costs = Readonly<Record<string, number>>;

/** The cost of a hold that ended. */
export interface Release {
  /** Credits; 0 for a key with unlimited credits. */
  readonly charged: number;
  /** The part of the cost that was not there; absent = none. */
  readonly short?: number;
  /** Credits left; absent = unlimited, or unknown. */
  readonly remaining?: number;
  /** The same of each rate limit that the hold reserved; absent = none. */
  readonly ratelimits?: readonly {
    readonly name: string;
    readonly charged: number;
    readonly short?: number;
    /** The part that the work did not need and nobody can use, because its window is over; absent = none. */
    readonly lost?: number;
    readonly remaining?: number;
  }[];
}

/** A verdict, and the functions that end its hold. A key that is refused has no hold. */
export type HeldKey = KeyVerdict & {
  /**
   * Ends the hold: frees its places, and charges `cost` instead of what it reserved: credits, or several amounts such as
   * `{ tokens: 1234 }`. It charges what was reserved of all that `cost` does not say. Repeated, it returns the same.
   * Rejects like `KeyVerifier.release`.
   */
  release(cost?: number | Costs): Promise<Release>;
  /** Ends the hold unless `release` did: for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
};

/**
 * A rate limit in a question: a limit of the key, or with `limit` and `duration` a limit that the question
 * defines.
 */
export interface AskedRateLimit {
  readonly name: string;
  /** Amount that the request takes from the limit. Default 1; 0 checks without taking. */
  readonly cost?: number;
  readonly limit?: number;
  /** Length of the limit's windows, in milliseconds. */
  readonly duration?: number;
}

/** The options of a watch: the end of the request, and what its key must fulfil, as in a question. */
export interface WatchOptions extends Pick<QuestionOptions, 'apiId' | 'permissions' | 'clientIp' | 'origin'> {
  /** Aborts when the request is over. The watch then ends and its signal never aborts. */
  readonly signal: AbortSignal;
}

/** The events of a verifier, with the argument that a listener gets. */
export interface VerifierEvents {
  /**
   * The verifier is in sync with an API and from now on answers from memory. For a client: the sidecar gave a
   * verdict.
   */
  live: { readonly apiId?: string };
  /**
   * The verifier is out of sync with Redis; it forgot everything about the API and is reading it anew. For a
   * client: the sidecar gave no verdict.
   */
  dropped: { readonly apiId?: string; readonly reason: string };
}

/** A verifier of keys: in this process (`createVerifier`), or through a sidecar (`createClient`). */
export interface KeyVerifier {
  /** The APIs for whose keys it answers; absent = every API, or unknown. */
  readonly apiIds?: readonly string[];
  /**
   * Resolves when the verifier can give verdicts. Rejects with `VerifierError` after `timeoutMs` (default
   * 10,000). The verifier then goes on trying, and `ready` may be called again.
   */
  ready(options?: { readonly timeoutMs?: number }): Promise<void>;
  /**
   * Resolves with the verdict on a key. Rejects with `VerifierError` if there can be no verdict; the caller
   * must then refuse the request.
   */
  verify(key: string, options?: QuestionOptions): Promise<KeyVerdict>;
  /**
   * Returns the verdict synchronously if it is in memory; undefined = call `verify`. A client has no memory,
   * so it always returns undefined.
   */
  decide(key: string, options?: QuestionOptions): KeyVerdict | undefined;
  /**
   * Holds a key until its work is over: reserves credits, and takes a place in each of its concurrency limits. A key
   * that is refused is no error: see `valid` of what it resolves with. Rejects like `verify`.
   */
  hold(key: string, options?: HoldOptions): Promise<HeldKey>;
  /**
   * Ends a hold by its id, as `HeldKey.release` does. Rejects with `VerifierError`: HOLD_UNKNOWN = its time was over,
   * and it was charged in full; SERVICE_UNAVAILABLE = `cost` is higher than what was reserved, and there is no answer
   * about the rest: the hold goes on.
   */
  release(hold: string, cost?: number | Costs): Promise<Release>;
  /**
   * Watches the key of a request that goes on, such as a WebSocket. Returns a signal that aborts, with a
   * `WatchError`, within a second after a change that makes the key no longer good is complete. It also aborts
   * if there is no verdict any more, and when the verifier is closed. A watch costs no credits and is not
   * counted. It ends when `options.signal` aborts. Throws a TypeError if the options are wrong.
   */
  watch(key: string, options: WatchOptions): AbortSignal;
  /**
   * Closes the verifier: rejects waiting questions, ends all watches, and leaves the fence so that no change
   * waits for this verifier. Holds in this process end, and are charged in full.
   */
  close(): Promise<void>;
  /** Calls `listener` at each event, until the returned function is called. */
  on<E extends keyof VerifierEvents>(event: E, listener: (event: VerifierEvents[E]) => void): () => void;
}

/** The part of prom-client's registry that is used here, the same in all its versions. */
export interface MetricsRegistry {
  registerMetric(metric: { get(): Promise<unknown> }): void;
}

/** A verifier in this process. It has the metrics of a verifier process, except those of the HTTP server. */
export interface LocalKeyVerifier extends KeyVerifier {
  /** Returns the verifier's metrics in the text format of Prometheus. */
  metrics(): Promise<string>;
  /**
   * Adds the verifier's metrics to a registry of the application, until `close`. The label `verifier` is 1
   * for the first verifier in that registry, 2 for the second. Call it once per registry.
   */
  registerMetrics(registry: MetricsRegistry): void;
}

/**
 * Thrown if there is no verdict: Redis or the sidecar is out of reach, not in sync or overloaded, or the
 * verifier was closed. HOLD_UNKNOWN: there is no such hold any more.
 */
export class VerifierError extends Error {
  readonly code: 'SERVICE_UNAVAILABLE' | 'CLOSED' | 'HOLD_UNKNOWN';
  /** Seconds after which to try again. */
  readonly retryAfterSeconds = 1;

  constructor(code: VerifierError['code'], message: string) {
    super(message);
    this.name = 'VerifierError';
    this.code = code;
  }
}

/**
 * The reason with which the signal of a watch aborts. `code` is the verdict on the key; SERVICE_UNAVAILABLE =
 * there is no verdict any more; CLOSED = the verifier was closed.
 */
export class WatchError extends Error {
  readonly code: RefusalCode | SilentCode | Exclude<VerifierError['code'], 'HOLD_UNKNOWN'>;

  constructor(code: WatchError['code']) {
    super(`the key is no longer good: ${code}`);
    this.name = 'WatchError';
    this.code = code;
  }
}

/** A logger of the application, such as pino's. Fields never contain a secret. */
export interface HostLogger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** The connection to Redis, as in the settings `REDIS_…` of a verifier process. */
export interface RedisConnectionOptions {
  /**
   * `redis://`, `rediss://` or `unix://`. Separate several addresses, of sentinels or seed nodes, by commas.
   */
  readonly url: string;
  readonly mode?: 'single' | 'sentinel' | 'cluster';
  readonly sentinelName?: string;
  readonly username?: string;
  readonly password?: string;
  /** A program that prints the password for new connections. */
  readonly passwordCommand?: string;
  readonly sentinelPassword?: string;
  readonly tlsCaFile?: string;
  readonly replicas?: number;
}

/**
 * The settings of a verifier process, with the same defaults, limits and units: `cacheKeysMax` is
 * CACHE_KEYS_MAX.
 */
export interface VerifierOptions {
  /** URL of Redis, or all its settings. */
  readonly redis: string | RedisConnectionOptions;
  /** The APIs whose keys the verifier answers for; default: every API. */
  readonly apiIds?: readonly string[];
  readonly cacheKeysMax?: number;
  readonly lookupWaitMs?: number;
  /** Replicas of Redis that are nearer than the primary, as URLs separated by commas. */
  readonly redisReadUrl?: string;
  /** Name of the region of this application, which the fleet's list tells. */
  readonly region?: string;
  readonly syncPeriodMs?: number;
  readonly foreignKeys?: boolean;
  readonly foreignDigests?: readonly ('sha512' | 'sha1' | 'hmacSha256')[];
  readonly foreignPepper?: string;
  readonly usagePeriodMs?: number;
  readonly creditsSliceMs?: number;
  /** Longest wait of `close` for open holds, in milliseconds; default 10,000. */
  readonly stopWaitMs?: number;
  /** Default: the verifier logs nothing. */
  readonly log?: HostLogger;
}

/** The connection to a sidecar: give either `url` or `unixSocket`. */
export interface ClientOptions {
  /** Address of the sidecar, `http://` or `https://`. */
  readonly url?: string;
  /** The sidecar's LISTEN_UNIX. */
  readonly unixSocket?: string;
  /** PEM file of the authority that signed the sidecar's certificate; default: those of Node. */
  readonly tlsCaFile?: string;
  /**
   * PEM files of this application's own certificate and its key, for a sidecar with TLS_CLIENT_CA_FILE. All
   * three files are read again for each new connection, so a renewed certificate needs no restart.
   */
  readonly tlsCertFile?: string;
  readonly tlsKeyFile?: string;
  /** A root key with `api.<apiId>.verify_key`, for a sidecar with VERIFY_ROOT_KEYS=required. */
  readonly rootKey?: string;
  /** Longest wait for an answer, 1..60,000 milliseconds; default 1,000. */
  readonly timeoutMs?: number;
  /** Maximum number of connections to the sidecar, 1..10,000; default 100. */
  readonly connectionsMax?: number;
  /**
   * Maximum number of unanswered questions, 1..1,000,000; default 10,000. Further questions are rejected
   * immediately.
   */
  readonly requestsInFlightMax?: number;
  /** Longest wait of `close` for guarded requests that are open, in milliseconds; default 10,000. */
  readonly stopWaitMs?: number;
}
