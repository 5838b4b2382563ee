import { bearerKey, type HeaderLines } from '../../http/credentials.ts';
import { isIdentityHeader } from '../../http/gateway-answer.ts';

/** The names of headers, in lower case, that a guard reads. */
export class HeaderReader {
  readonly #names: ReadonlySet<string>;
  /** The lengths of the names. Comparing lengths first skips most other headers cheaply. */
  readonly #lengths: ReadonlySet<number>;

  constructor(names: readonly string[] = []) {
    this.#names = new Set(['authorization', 'x-api-key', 'x-request-id', ...names]);
    this.#lengths = new Set([...this.#names].map((name) => name.length));
  }

  /**
   * Returns the headers that the guard reads, with each line by itself.
   * @param rawHeaders names and values, alternating
   */
  read(rawHeaders: readonly string[]): HeaderLines {
    const lines: Record<string, string[]> = {};
    for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
      const [name, value] = [rawHeaders[i], rawHeaders[i + 1]];
      if (name === undefined || value === undefined || !this.#lengths.has(name.length)) continue;
      const lowerName = name.toLowerCase();
      if (!this.#names.has(lowerName)) continue;
      const values = lines[lowerName];
      if (values === undefined) lines[lowerName] = [value];
      else values.push(value);
    }
    return lines;
  }
}

/** Reads the headers of the usual sources. */
export const USUAL_HEADERS = new HeaderReader();

/**
 * Returns the key if the request has the most common form: one `Authorization: Bearer` and no `X-Api-Key`.
 * undefined = the caller must read all headers.
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

/** A request of node:http or node:http2, reduced to its headers. */
export interface WithHeaders {
  readonly rawHeaders: string[];
  readonly headers: Record<string, unknown>;
  /** Missing in HTTP/2. */
  readonly headersDistinct?: Record<string, unknown>;
}

/**
 * Removes the headers with which gateways tell an API whose key it was. No gateway stands before a guard, so
 * only the client can have set them.
 */
export function removeIdentity(request: WithHeaders): void {
  const { rawHeaders } = request;
  if (!hasIdentity(rawHeaders)) return;
  // Node derives both objects from the raw headers at their first use, and relies on the number of raw
  // headers.
  for (const headers of [request.headers, request.headersDistinct ?? {}]) {
    for (const name of Object.keys(headers)) if (isIdentity(name)) delete headers[name];
  }
  for (let i = rawHeaders.length - 2; i >= 0; i -= 2) {
    if (isIdentity(rawHeaders[i] ?? '')) rawHeaders.splice(i, 2);
  }
}

/** Returns true if one of the headers says whose key it is. */
export function hasIdentity(rawHeaders: readonly string[]): boolean {
  for (let i = 0; i < rawHeaders.length; i += 2) if (isIdentity(rawHeaders[i] ?? '')) return true;
  return false;
}

/**
 * Returns the same as `isIdentityHeader`, but for most names compares only the first letter (x) and the third
 * (k).
 */
export function isIdentity(name: string): boolean {
  return (
    (name.charCodeAt(0) | 0x20) === 0x78 && (name.charCodeAt(2) | 0x20) === 0x6b && isIdentityHeader(name)
  );
}
