/**
 * Returns `X-Forwarded-For` for a request to pass on: the client's own value, then its address. Recipients
 * may trust only the last address.
 * @param header the client's own value; undefined = none, or not trusted
 * @param address undefined = none, as on a Unix socket
 */
export function forwardedFor(header: string | undefined, address = 'unknown'): string {
  const own = address.replace('::ffff:', '');
  return header === undefined ? own : `${header}, ${own}`;
}

/**
 * Returns true if a header says who the client is, or what it asked of an earlier proxy. `name` is in lower
 * case.
 */
export function isForwarding(name: string): boolean {
  return name.startsWith('x-forwarded') || name.startsWith('forwarded') || FORWARDING.has(name);
}

/** The names that common frameworks and libraries read. */
const FORWARDING: ReadonlySet<string> = new Set([
  'cf-connecting-ip',
  'cf-connecting-ipv6',
  'cf-pseudo-ipv4',
  'client-ip',
  'fastly-client-ip',
  'front-end-https',
  'proxy-client-ip',
  'true-client-ip',
  'wl-proxy-client-ip',
  'x-appengine-user-ip',
  'x-azure-clientip',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-envoy-external-address',
  'x-original-forwarded-for',
  'x-original-host',
  'x-original-url',
  'x-real-ip',
  'x-rewrite-url',
]);
