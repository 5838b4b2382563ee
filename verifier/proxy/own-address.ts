/** Tells whether requests to `url` arrive at a listener of ours on `host` and `port`, as far as the texts tell. */
export function leadsTo(url: URL, host: string, port: number): boolean {
  const urlPort = Number(url.port) || (url.protocol === 'https:' ? 443 : 80);
  if (urlPort !== port) return false;
  const urlHost = url.hostname.replace(/^\[|\]$/g, '');
  const isLocal = LOOPBACK.has(urlHost);
  return urlHost === host || (isLocal && (ANY_ADDRESS.has(host) || (isIpv4(urlHost) && isIpv4(host))));
}

const ANY_ADDRESS: ReadonlySet<string> = new Set(['0.0.0.0', '::']);
const LOOPBACK: ReadonlySet<string> = new Set(['127.0.0.1', '::1', 'localhost', ...ANY_ADDRESS]);

/** Tells whether a host is the loopback of IPv4, where it is a loopback at all. */
const isIpv4 = (host: string) => host === '127.0.0.1' || host === 'localhost';
