import { ApiError } from '../../rules/errors.ts';

/** The questions to verifiers that a root key permits. */
export interface RootKeyScope {
  /** Ids of the APIs about whose keys it may ask; `*` = all. */
  readonly apis: '*' | readonly string[];
  /** True = it may take from rate limits that belong to no key. */
  readonly limits: boolean;
}

/** A scope as the record has it. */
interface StoredScope extends RootKeyScope {
  /** Id of a root key of a configuration; absent = the root key is in Redis. */
  readonly bootstrap?: string;
}

/** The scopes in the record's `meta`, by `rootKeyMark`. A root key that is refused is not among them. */
export type StoredScopes = Readonly<Record<string, StoredScope>>;

/** Returns the scopes in the record's `meta`. */
export const scopesIn = ({ rootKeys = {} }: { readonly rootKeys?: StoredScopes }): StoredScopes => rootKeys;

/**
 * The part of a secret's hash that stands for a root key, 132 bits.
 * @param secretHash as `hashSecret` returns it
 */
export const rootKeyMark = (secretHash: string): string => secretHash.slice(0, 22);

/**
 * Returns the root key of an `Authorization` header. Throws UNAUTHORIZED if the header has another form.
 */
export function rootKeyFrom(authorization: string | undefined): string {
  const token = /^Bearer +([\x21-\x7e]{1,512}) *$/i.exec(authorization ?? '')?.[1];
  if (token) return token;
  if (!authorization) throw new ApiError('UNAUTHORIZED', 'Authorization: required, as "Bearer <root key>"');
  const fix = /^[\x21-\x7e]+$/.test(authorization) ? '; put "Bearer " before the root key' : '';
  throw new ApiError('UNAUTHORIZED', `Authorization: must be of the form "Bearer <root key>"${fix}`);
}
