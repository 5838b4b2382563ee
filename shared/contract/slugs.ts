/** A permission, as it is written on keys and in queries. Goes into paths and texts as it is; `*` stands for itself. */
export const SLUG = /^[A-Za-z0-9_:.*-]{1,100}$/;
/** Most permissions of a key. */
export const SLUGS_MAX = 100;

/** The form in Redis, the same for the same permissions in whatever order; `''` = none. */
export const slugsText = (slugs: readonly string[]): string => [...new Set(slugs)].sort().join(' ');

/** Reads what `slugsText` wrote. */
export const slugsOf = (text: string): string[] => (text === '' ? [] : text.split(' '));

/** The protocol that verifiers must speak to take permissions into account. */
export const PERMISSIONS_PROTOCOL = 3;
/** The protocol that verifiers must speak to know of roles and identities. */
export const ROLES_PROTOCOL = 4;
