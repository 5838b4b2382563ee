/**
 * Returns true if requests to `url` would arrive at our own listener on `host` and `port`. Compares only the
 * texts, without DNS.
 */
export function leadsTo(url: URL, host: string, port: number): boolean {
  const urlPort = Number(url.port) || (url.protocol === 'https:' ? 443 : 80);
  if (urlPort !== port) return false;
  const urlHost = url.hostname.replace(/^\[|\]$/g, '');
  const isLocal = LOOPBACK.has(urlHost);
  return urlHost === host || (isLocal && (ANY_ADDRESS.has(host) || (isIpv4(urlHost) && isIpv4(host))));
}

const ANY_ADDRESS: ReadonlySet<string> = new Set(['0.0.0.0', '::']);
const LOOPBACK: ReadonlySet<string> = new Set(['127.0.0.1', '::1', 'localhost', ...ANY_ADDRESS]);

/** Returns true if a loopback host is that of IPv4. */
const isIpv4 = (host: string) => host === '127.0.0.1' || host === 'localhost';
