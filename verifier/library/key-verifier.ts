// By its path, which applications' compilers find too.
import type { RefusalCode, SilentCode } from '../../shared/contract/verdict-codes.ts';

/** A decision on a key, as `keys.verifyKey` answers it. */
export type KeyVerdict = ValidKey | RefusedKey | UnknownKey;

/** The facts of a key that a verdict shows. */
export interface KnownKey {
  readonly keyId: string;
  readonly apiId: string;
  /** Any JSON object that was set on the key; `{}` where none was. */
  readonly meta: Readonly<Record<string, unknown>>;
  readonly name?: string;
  /** The owner in the caller's own system. */
  readonly externalId?: string;
  /** The same as `externalId`. */
  readonly ownerId?: string;
  readonly environment?: string;
  /** Names of what the key may do, by itself and by its roles; absent = nothing was said of it. */
  readonly permissions?: readonly string[];
  /** Names of its roles; absent = it has none. */
  readonly roles?: readonly string[];
  /** Identity of its owner; absent = there is none. */
  readonly identity?: { readonly id: string; readonly externalId: string; readonly meta: object };
  /** Unix milliseconds from which on the key is refused; absent = never. */
  readonly expires?: number;
  /** Credits left after this; absent = as many as are asked for, or the key was refused for something else. */
  readonly remaining?: number;
  /** The limit that refuses the key, else the default one; absent = the key has none, or was refused for something else. */
  readonly ratelimit?: { readonly limit: number; readonly remaining: number; readonly reset: number };
  /** All limits that the request was about. */
  readonly ratelimits?: readonly LimitState[];
}

/** A rate limit after a verification. */
export interface LimitState {
  /** The one that is obeyed always is `default`. */
  readonly name: string;
  readonly limit: number;
  /** Length of its windows, milliseconds. */
  readonly duration: number;
  readonly remaining: number;
  /** When the present window ends, Unix milliseconds. */
  readonly reset: number;
  /** True if it is why the key was refused. */
  readonly exceeded: boolean;
}

/** The only verdict that lets a caller pass. */
export interface ValidKey extends KnownKey {
  readonly valid: true;
  readonly code: 'VALID';
  readonly enabled: true;
}

/** A known key that is refused. */
export interface RefusedKey extends KnownKey {
  readonly valid: false;
  readonly code: RefusalCode;
  readonly enabled: boolean;
}

/** FORBIDDEN: a key of another API. NOT_FOUND: no key has this secret. */
export interface UnknownKey {
  readonly valid: false;
  readonly code: SilentCode;
}

/** Permissions that a key must have: one, all or any of several, or a text such as `a AND (b OR c)`. */
export type PermissionQuery =
  | string
  | { readonly and: readonly PermissionQuery[] }
  | { readonly or: readonly PermissionQuery[] };

/** The rest of a question about a key. */
export interface QuestionOptions {
  /** The API that the key must be of; left out = any that the verifier answers for. */
  readonly apiId?: string;
  /** Names to count the verdict by besides its key, at most 10 of 1..128 characters; `apis.getVerifications` tells the counts. */
  readonly tags?: readonly string[];
  /** Credits that the request costs, where the key has any; 1 where it is left out, 0 only looks. */
  readonly remaining?: { readonly cost?: number };
  /** Rate limits that the request is about besides the default one, which may be named to give it another cost; at most 8. */
  readonly ratelimits?: readonly AskedRateLimit[];
  /** Permissions that the key must have; where it lacks one the verdict is INSUFFICIENT_PERMISSIONS. */
  readonly permissions?: PermissionQuery;
}

/** A rate limit that a question is about: one of the key's, or with `limit` and `duration` one that the question brings. */
export interface AskedRateLimit {
  readonly name: string;
  /** Number that the request takes of it; 1 where it is left out, 0 only looks. */
  readonly cost?: number;
  readonly limit?: number;
  /** Length of its windows, milliseconds. */
  readonly duration?: number;
}

/** The events of a verifier, and what a listener is told. */
export interface VerifierEvents {
  /** An API is in sync, from here on answered from memory. Of a client: the sidecar gave a verdict. */
  live: { readonly apiId?: string };
  /**
   * Out of sync with Redis: everything known of the API was forgotten, and is being read anew. Of a client: the sidecar
   * gave no verdict.
   */
  dropped: { readonly apiId?: string; readonly reason: string };
}

/** Answers "is this key good?": in this process (`createVerifier`), or by way of a sidecar (`createClient`). */
export interface KeyVerifier {
  /**
   * Resolves when verdicts can be given. Rejects with `VerifierError` after `timeoutMs`, 10,000 where it is left out; the
   * verifier goes on trying, and `ready` may be called again.
   */
  ready(options?: { readonly timeoutMs?: number }): Promise<void>;
  /** The verdict on a key. Rejects with `VerifierError` when none can be had: then the caller must refuse. */
  verify(key: string, options?: QuestionOptions): Promise<KeyVerdict>;
  /** The same at once, where memory may tell at this very instant; undefined = ask `verify`. A client's memory is empty. */
  decide(key: string, options?: QuestionOptions): KeyVerdict | undefined;
  /** Ends: what waits is rejected, and no change of a key waits for this verifier any more. */
  close(): Promise<void>;
  /** Calls `listener` at each event from now on, until the function that this returns is called. */
  on<E extends keyof VerifierEvents>(event: E, listener: (event: VerifierEvents[E]) => void): () => void;
}

/** A registry of prom-client: what is needed of one, whichever version it is. */
export interface MetricsRegistry {
  registerMetric(metric: { get(): Promise<unknown> }): void;
}

/** A verifier in this process, which has metrics of its own: those of a verifier process, but for its HTTP server's. */
export interface LocalKeyVerifier extends KeyVerifier {
  /** Its metrics in the text form of Prometheus. */
  metrics(): Promise<string>;
  /**
   * Shows its metrics in a registry of the application until it is closed, with the label `verifier`: 1 for the first that is
   * shown there, 2 for the second. Once for each registry.
   */
  registerMetrics(registry: MetricsRegistry): void;
}

/** Nothing was decided: Redis or the sidecar is out of reach, not in sync or overloaded, or the verifier was closed. */
export class VerifierError extends Error {
  readonly code: 'SERVICE_UNAVAILABLE' | 'CLOSED';
  /** Seconds after which to try again. */
  readonly retryAfterSeconds = 1;

  constructor(code: 'SERVICE_UNAVAILABLE' | 'CLOSED', message: string) {
    super(message);
    this.name = 'VerifierError';
    this.code = code;
  }
}

/** A logger of the application, such as pino's. Fields never hold a key. */
export interface HostLogger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Redis, as the settings `REDIS_…` of a verifier process say it. */
export interface RedisConnectionOptions {
  /** `redis://`, `rediss://` or `unix://`; several addresses of sentinels or seed nodes, separated by commas. */
  readonly url: string;
  readonly mode?: 'single' | 'sentinel' | 'cluster';
  readonly sentinelName?: string;
  readonly username?: string;
  readonly password?: string;
  readonly sentinelPassword?: string;
  readonly tlsCaFile?: string;
  readonly replicas?: number;
  readonly connectTimeoutMs?: number;
  readonly commandTimeoutMs?: number;
}

/** The settings of a verifier process, with its defaults, limits and units: `cacheKeysMax` is CACHE_KEYS_MAX. */
export interface VerifierOptions {
  /** Its URL, or all of it. */
  readonly redis: string | RedisConnectionOptions;
  /** The APIs whose keys are answered for; left out = every API. */
  readonly apiIds?: readonly string[];
  readonly cacheKeysMax?: number;
  readonly unknownKeysMax?: number;
  readonly unknownKeyTtlMs?: number;
  readonly lookupsInFlightMax?: number;
  readonly lookupsQueuedMax?: number;
  readonly lookupWaitMs?: number;
  readonly syncPeriodMs?: number;
  readonly syncDeadlineMs?: number;
  readonly apisMax?: number;
  readonly apiIdleMs?: number;
  readonly foreignKeys?: boolean;
  readonly statusPeriodMs?: number;
  readonly usagePeriodMs?: number;
  readonly usageKeysMax?: number;
  readonly usageTagsMax?: number;
  readonly usageTagsHeldMax?: number;
  readonly creditsSliceMs?: number;
  /** Nothing is logged without one. */
  readonly log?: HostLogger;
}

/** The way to a sidecar: one of `url` and `unixSocket`. */
export interface ClientOptions {
  /** Address of the sidecar, `http://` or `https://`. */
  readonly url?: string;
  /** The sidecar's LISTEN_UNIX. */
  readonly unixSocket?: string;
  /** Longest wait for an answer, 1..60,000 milliseconds; 1,000 where it is left out. */
  readonly timeoutMs?: number;
  /** Most connections to the sidecar, 1..10,000; 100 where it is left out. */
  readonly connectionsMax?: number;
  /** Most questions on their way, 1..1,000,000; more are rejected at once. 10,000 where it is left out. */
  readonly requestsInFlightMax?: number;
}
