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

/** The protocol that verifiers need for permissions. */
export const PERMISSIONS_PROTOCOL = 3;
/** The protocol that verifiers need for roles and identities. */
export const ROLES_PROTOCOL = 4;
/** The protocol that verifiers need for allow lists of addresses. */
export const RANGES_PROTOCOL = 6;
