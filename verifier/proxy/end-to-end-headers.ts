import { isForwarding } from './forwarded-for.ts';

/** Names in lower case of headers that speak of one connection only (RFC 9110 §7.6.1), and of the framing on it. */
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

/** Tells whether a header, its name in lower case, speaks of one connection only, or of the framing or host on it. */
export function isOfConnection(name: string): boolean {
  return HOP_BY_HOP.has(name) || name === 'content-length' || name === 'host';
}

/**
 * The headers of a message that may be passed on, in their order, doubles included.
 * @param raw names and values in turn
 * @param connection the message's Connection header: what it names stays behind too, but for what the message needs
 * @param drop by name in lower case, and value: more that stays behind
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
 * Tells whether a header is meant for every recipient (RFC 9110 §7.6.1), so that no client can have it taken away: the message
 * would be another one without it, or its client somebody else.
 */
const isNeeded = (name: string): boolean =>
  name === 'host' || name.startsWith('content-') || isForwarding(name);

/** A set: a client may name thousands beside thousands of headers. */
function namesIn(connection: string): ReadonlySet<string> {
  if (/^(?:keep-alive|close)?$/i.test(connection)) return NO_NAMES;
  return new Set(connection.split(',').map((name) => name.trim().toLowerCase()));
}

const NO_NAMES: ReadonlySet<string> = new Set();
