import { isForwarding } from './forwarded-for.ts';

/** Names, in lower case, of headers about one connection (RFC 9110 §7.6.1) or its framing. */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'expect',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** Returns true if a header is about one connection, its framing or its host. `name` is in lower case. */
export function isOfConnection(name: string): boolean {
  return HOP_BY_HOP.has(name) || name === 'content-length' || name === 'host';
}

/**
 * Returns the headers of a message that may be passed on, in their order and with repeated lines.
 * @param raw header names and values, alternating
 * @param connection the message's Connection header: the headers that it names are dropped, except those that
 * the message needs
 * @param drop returns true for further headers to drop; its `name` is in lower case
 */
export function endToEndHeaders(
  raw: readonly string[],
  connection: string | readonly string[] | undefined,
  drop: (name: string, value: string) => boolean,
): string[] {
  const connectionNames = namesIn(String(connection ?? ''));
  const headers: string[] = [];
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] ?? '';
    const value = raw[i + 1] ?? '';
    const lowerName = name.toLowerCase();
    const staysBehind = HOP_BY_HOP.has(lowerName) || (connectionNames.has(lowerName) && !isNeeded(lowerName));
    if (!staysBehind && !drop(lowerName, value)) headers.push(name, value);
  }
  return headers;
}

/**
 * Returns true if a header is meant for every recipient (RFC 9110 §7.6.1). Such a header stays even if
 * `Connection` names it: without it, the message would mean something else or seem to come from another
 * client.
 */
const isNeeded = (name: string): boolean =>
  name === 'host' || name.startsWith('content-') || isForwarding(name);

/** Returns a set, because a client may name thousands of headers and also send thousands. */
function namesIn(connection: string): ReadonlySet<string> {
  if (/^(?:keep-alive|close)?$/i.test(connection)) return NO_NAMES;
  return new Set(connection.split(',').map((name) => name.trim().toLowerCase()));
}

const NO_NAMES: ReadonlySet<string> = new Set();
