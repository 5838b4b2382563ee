/** Defaults of an API's new keys, for what the caller does not say. */
export interface ApiDefaults {
  readonly defaultPrefix?: string;
  /** Random bytes. */
  readonly defaultBytes?: number;
}

/** Random bytes of a key for which neither the caller nor the API says how many. */
export const BYTES = 16;

/** APIs of which the defaults are remembered; of others they are learnt again. */
const APIS_MAX = 1000;

/**
 * The defaults of APIs as they were last seen, `prefix bytes`. create-key.lua compares them with those of the API and
 * creates nothing where they differ. So reading them costs no call, and an outdated one is never used.
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

/** Parses `prefix bytes`; each is `''` where there is none. */
export function parseDefaults(text: string): ApiDefaults {
  const [prefix, bytes] = text.split(' ');
  return { ...(prefix ? { defaultPrefix: prefix } : {}), ...(bytes ? { defaultBytes: Number(bytes) } : {}) };
}
