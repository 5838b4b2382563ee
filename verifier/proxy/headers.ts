import { channel } from 'node:diagnostics_channel';

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

/**
 * Returns `X-Forwarded-For` for a request to pass on: the value that the client sent, then the client's address. Recipients
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

/** Headers that a tracer adds to outgoing requests (W3C Trace Context). */
const TRACE_HEADERS: ReadonlySet<string> = new Set(['traceparent', 'tracestate']);

/**
 * Returns the trace headers that a tracer in this process writes, in lower case; none without a tracer.
 * undici would send the client's headers beside the tracer's, and a recipient of two starts a new trace
 * (ibid. §3.2.3). Tracers such as OpenTelemetry's subscribe to undici before the process's own code runs.
 */
export function writtenByTracer(): ReadonlySet<string> {
  return channel('undici:request:create').hasSubscribers ? TRACE_HEADERS : NO_HEADERS;
}

const NO_HEADERS: ReadonlySet<string> = new Set();
