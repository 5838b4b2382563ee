import { hashSecret } from '#shared/contract/key-format.ts';
import { rootKeyMark, scopesIn } from '#shared/redis/root-keys-record.ts';

/** The questions that a caller may ask. */
export interface Scope {
  /** The APIs about whose keys it may ask; undefined = all. */
  readonly allowedApis: ReadonlySet<string> | undefined;
  /** True = it may ask about keys at all. */
  readonly keys: boolean;
  /** True = it may take from rate limits that belong to no key. */
  readonly limits: boolean;
}

/** The scopes of all root keys, arranged for look-ups. */
export class Scopes {
  readonly #scopes = new Map<string, Scope>();

  /** @param meta the `meta` of the record with all scopes, as JSON */
  constructor(meta: string) {
    for (const [mark, { apis, limits }] of Object.entries(scopesIn(JSON.parse(meta)))) {
      const allowedApis = apis === '*' ? undefined : new Set(apis);
      this.#scopes.set(mark, { allowedApis, keys: allowedApis?.size !== 0, limits });
    }
  }

  /** Returns what the holder of this root key may ask; undefined = it is unknown or disabled. */
  of(rootKey: string): Scope | undefined {
    return this.#scopes.get(rootKeyMark(hashSecret(rootKey)));
  }
}
