/**
 * Matches a permission on keys and in queries. It appears unescaped in paths and texts; `*` is no wildcard.
 */
export const SLUG = /^[A-Za-z0-9_:.*-]{1,100}$/;
/** Maximum number of permissions of a key. */
export const SLUGS_MAX = 100;

/**
 * Returns permissions in their form in Redis, the same for every order of the same permissions; `''` = none.
 */
export const slugsText = (slugs: readonly string[]): string => [...new Set(slugs)].sort().join(' ');

/** Parses the result of `slugsText`. */
export const slugsOf = (text: string): string[] => (text === '' ? [] : text.split(' '));

/** The pattern of an API's id, as a part of other patterns. */
export const API_ID_PATTERN = '[A-Za-z0-9_-]{1,64}';
/** Stands for any API where a gateway or a setting has to name one. */
export const ANY_API = '*';
/** Matches an API's id. */
export const API_ID = new RegExp(`^${API_ID_PATTERN}$`);
