/** An API's rules for its keys, and its defaults for new keys, used where the caller gives no value. */
export interface ApiDefaults {
  readonly defaultPrefix?: string;
  /** Number of random bytes. */
  readonly defaultBytes?: number;
  /** Lifetime of a key that is created without an expiry, ms. */
  readonly defaultLifetimeMs?: number;
  /** The longest lifetime that a key may be given, ms. */
  readonly maxLifetimeMs?: number;
  /** A key that nobody uses for this time is disabled, ms. */
  readonly disableUnusedAfterMs?: number;
  /** True if who has a key may revoke it. */
  readonly selfRevocation?: boolean;
}

/** Number of random bytes of a key, if neither the caller nor the API sets one. */
export const BYTES = 16;

/** The maximum number of APIs whose defaults are remembered; the oldest are dropped and read again. */
const APIS_MAX = 1000;

/**
 * The last known defaults of APIs, as `prefix bytes`. create-key.lua compares them with the API's own and
 * creates nothing if they differ. So knowing the defaults costs no call, and outdated ones are never used.
 */
export class SeenDefaults {
  readonly #texts = new Map<string, string>();

  of(apiId: string): string {
    return this.#texts.get(apiId) ?? NO_VALUE;
  }

  saw(apiId: string, defaults: string): void {
    this.#texts.delete(apiId);
    if (defaults === NO_VALUE) return;
    this.#texts.set(apiId, defaults);
    const [oldest] = this.#texts.keys();
    if (this.#texts.size > APIS_MAX && oldest !== undefined) this.#texts.delete(oldest);
  }
}

const NO_VALUE = ' ';

/** Parses `prefix bytes`; an empty part means that there is no default. */
export function parseDefaults(text: string): ApiDefaults {
  const [prefix, bytes] = text.split(' ');
  return { ...(prefix ? { defaultPrefix: prefix } : {}), ...(bytes ? { defaultBytes: Number(bytes) } : {}) };
}
