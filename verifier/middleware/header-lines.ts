import { bearerKey, type HeaderLines } from '../endpoints/credentials.ts';
import { isIdentityHeader } from '../endpoints/identity-headers.ts';

/** Headers that say who asks and by which key; no others are read. */
const READ_HEADERS: ReadonlySet<string> = new Set(['authorization', 'x-api-key', 'x-request-id']);
/** Lengths of their names, so that most of the others are passed over by a comparison of numbers. */
const LENGTHS: ReadonlySet<number> = new Set([...READ_HEADERS].map((name) => name.length));

/** The headers that a guard reads, each line by itself, from names and values in turn. */
export function headersOf(rawHeaders: readonly string[]): HeaderLines {
  const lines: Record<string, string[]> = {};
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const [name, value] = [rawHeaders[i], rawHeaders[i + 1]];
    if (name === undefined || value === undefined || !LENGTHS.has(name.length)) continue;
    const lowerName = name.toLowerCase();
    if (!READ_HEADERS.has(lowerName)) continue;
    const values = lines[lowerName];
    if (values === undefined) lines[lowerName] = [value];
    else values.push(value);
  }
  return lines;
}

/**
 * The key of a request that shows it as most do: one `Authorization: Bearer`, no `X-Api-Key`. undefined = read them all.
 */
export function loneBearer(rawHeaders: readonly string[]): string | undefined {
  let line: string | undefined;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? '';
    if (name.length === 9 && name.toLowerCase() === 'x-api-key') return undefined;
    if (name.length !== 13 || name.toLowerCase() !== 'authorization') continue;
    if (line !== undefined) return undefined;
    line = rawHeaders[i + 1];
  }
  // An empty text is no key.
  return (line && bearerKey(line)) || undefined;
}

/** A request of node:http or node:http2, as far as its headers go. */
export interface WithHeaders {
  readonly rawHeaders: string[];
  readonly headers: Record<string, unknown>;
  /** HTTP/2 has none. */
  readonly headersDistinct?: Record<string, unknown>;
}

/**
 * Removes the headers by which gateways tell an API whose key it was: where a guard stands there is no gateway, so they are
 * the client's own words.
 */
export function removeIdentity(request: WithHeaders): void {
  const { rawHeaders } = request;
  if (!hasIdentity(rawHeaders)) return;
  // Node makes both of these from the raw ones when they are first asked for, and counts on their number.
  for (const headers of [request.headers, request.headersDistinct ?? {}]) {
    for (const name of Object.keys(headers)) if (isIdentity(name)) delete headers[name];
  }
  for (let i = rawHeaders.length - 2; i >= 0; i -= 2) {
    if (isIdentity(rawHeaders[i] ?? '')) rawHeaders.splice(i, 2);
  }
}

/** Tells whether one of the names says whose key it is. */
export function hasIdentity(rawHeaders: readonly string[]): boolean {
  for (let i = 0; i < rawHeaders.length; i += 2) if (isIdentity(rawHeaders[i] ?? '')) return true;
  return false;
}

/** `isIdentityHeader`, at the cost of two letters for most names: an x, and a k behind what follows it. */
export function isIdentity(name: string): boolean {
  return (
    (name.charCodeAt(0) | 0x20) === 0x78 && (name.charCodeAt(2) | 0x20) === 0x6b && isIdentityHeader(name)
  );
}
