/**
 * `X-Forwarded-For` for whom a request is passed on to: what the client said with its address after it, for only what
 * comes last is to be believed.
 * @param said the client's own; undefined = it sent none, or nobody believes it
 * @param address undefined = it has none, as on a Unix socket
 */
export function forwardedFor(said: string | undefined, address = 'unknown'): string {
  const own = address.replace('::ffff:', '');
  return said === undefined ? own : `${said}, ${own}`;
}

/** Tells whether a header, its name in lower case, says who the client is or what it asked of a proxy before this one. */
export function isForwarding(name: string): boolean {
  return name.startsWith('x-forwarded-') || FORWARDING.has(name);
}

const FORWARDING: ReadonlySet<string> = new Set([
  'forwarded',
  'x-real-ip',
  'x-client-ip',
  'x-cluster-client-ip',
  'true-client-ip',
  'cf-connecting-ip',
]);
