/**
 * `X-Forwarded-For` for whom a request is passed on to: what the client said with its address after it, for only what
 * comes last is to be believed.
 * @param header the client's own; undefined = it sent none, or nobody believes it
 * @param address undefined = it has none, as on a Unix socket
 */
export function forwardedFor(header: string | undefined, address = 'unknown'): string {
  const own = address.replace('::ffff:', '');
  return header === undefined ? own : `${header}, ${own}`;
}

/** Tells whether a header, its name in lower case, says who the client is or what it asked of a proxy before this one. */
export function isForwarding(name: string): boolean {
  return name.startsWith('x-forwarded') || name.startsWith('forwarded') || FORWARDING.has(name);
}

/** All that common frameworks and libraries read. */
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
