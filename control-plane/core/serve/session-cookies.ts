import type { FastifyRequest } from 'fastify';

/** The cookie with the token of a session. */
export const SESSION_COOKIE = 'keyfence_session';

/** Browsers accept such a name only over TLS and from this host itself, not from a neighbour in its domain (RFC 6265bis). */
const SECURE_PREFIX = '__Host-';

/**
 * Returns the value of a cookie. The one that no neighbour can have set comes first.
 * @param isSecure true = no other counts
 */
export function cookieIn(
  { headers: { cookie = '' } }: FastifyRequest,
  name: string,
  isSecure = false,
): string | undefined {
  const find = (each: string) => new RegExp(`(?:^|;\\s*)${each}=([\\w-]+)`).exec(cookie)?.[1];
  return find(SECURE_PREFIX + name) ?? (isSecure ? undefined : find(name));
}

/** Returns the line that sets a cookie which scripts cannot read; an `ageMs` of 0 clears it. */
export function cookieLine(cookie: {
  readonly name: string;
  readonly value: string;
  readonly ageMs: number;
  readonly isSecure: boolean;
  readonly sameSite?: 'Lax';
}): string {
  const { name, value, ageMs, isSecure, sameSite = 'Strict' } = cookie;
  const [prefix, end] = isSecure ? [SECURE_PREFIX, '; Secure'] : ['', ''];
  return `${prefix}${name}=${value}; Path=/; HttpOnly; SameSite=${sameSite}; Max-Age=${ageMs / 1000}${end}`;
}
