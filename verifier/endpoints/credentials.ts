/** Places where a client may put its key: `Authorization: Bearer`, `X-Api-Key`, or the query parameter `api_key`. */
export const SOURCES = ['bearer', 'x-api-key', 'query'] as const;
/** One of `SOURCES`. */
export type Source = (typeof SOURCES)[number];

/** Header lines by name in lower case, each line a value of its own, as `headersDistinct` of `node:http` has them. */
export type HeaderLines = Readonly<Record<string, readonly string[] | undefined>>;

/** The key that a client shows, or why there is none to judge. */
export type Credential = { readonly key: string } | { readonly fault: CredentialFault };
/** `KEY_MISSING`: no enabled source has one. `KEY_AMBIGUOUS`: one source twice, or two sources that differ. */
export type CredentialFault = 'KEY_MISSING' | 'KEY_AMBIGUOUS';

/**
 * Finds the key of a client's request in the enabled sources. Never chooses between two: what this process judged
 * and what the API behind it reads must be the same key.
 * @param target the client's path and query; only looked at where `query` is enabled
 */
export function credentialOf(
  headers: HeaderLines,
  target: string | undefined,
  sources: readonly Source[],
): Credential {
  let key = '';
  for (const source of sources) {
    const values = valuesOf(source, headers, target);
    if (values.length > 1) return { fault: 'KEY_AMBIGUOUS' };
    const [value = ''] = values;
    if (value === '') continue;
    if (key !== '' && key !== value) return { fault: 'KEY_AMBIGUOUS' };
    key = value;
  }
  return key === '' ? { fault: 'KEY_MISSING' } : { key };
}

/** Tells whether a header may hold a key, so that it must not reach the API. `name` in lower case. */
export function mayHoldKey(name: string, value: string, sources: readonly Source[]): boolean {
  if (name === 'authorization') return sources.includes('bearer') && /^bearer\b/i.test(value);
  return name === 'x-api-key' && sources.includes('x-api-key');
}

/** A path and query without the keys in it, all else as it was. */
export function withoutKey(target: string, sources: readonly Source[]): string {
  const start = target.indexOf('?');
  if (start < 0 || !sources.includes('query')) return target;
  const rest = target
    .slice(start + 1)
    .split('&')
    .filter((pair) => !holdsKey(pair));
  return rest.length === 0 ? target.slice(0, start) : `${target.slice(0, start)}?${rest.join('&')}`;
}

/** The key in an `Authorization` line; empty where it is of another scheme. */
export function bearerKey(line: string): string {
  // Most clients spell it so, and a pattern takes twice the time.
  const first = line.startsWith('Bearer ') ? line.charCodeAt(7) : 0;
  if (first > 0x20 && first < 0x7f) return line.slice(7);
  return /^bearer +(\S.*)$/i.exec(line)?.[1] ?? '';
}

function valuesOf(source: Source, headers: HeaderLines, target = ''): readonly string[] {
  switch (source) {
    case 'bearer':
      // Another scheme is no key, yet beside a second Authorization line it is as ambiguous as a key.
      return (headers['authorization'] ?? []).map(bearerKey);
    case 'x-api-key':
      return headers['x-api-key'] ?? [];
    case 'query':
      return queryKeys(target);
  }
}

/** The query parameter that a key may be in. */
export const QUERY_PARAMETER = 'api_key';
const PARAMETER = `${QUERY_PARAMETER}=`;

/** Names under which a key is in the query, as they are spelt there. */
export function keyParameters(target: string): string[] {
  return keyPairs(target).map((pair) => pair.slice(0, pair.indexOf('=')));
}

function queryKeys(target: string): string[] {
  return keyPairs(target).map((pair) => pair.slice(pair.indexOf('=') + 1));
}

function keyPairs(target: string): string[] {
  const start = target.indexOf('?');
  return start < 0
    ? []
    : target
        .slice(start + 1)
        .split('&')
        .filter(holdsKey);
}

/** Says whether a server that decodes names reads the parameter's in a pair. */
function holdsKey(pair: string): boolean {
  if (pair.startsWith(PARAMETER)) return true;
  const end = pair.indexOf('=');
  // A name is no shorter for being encoded.
  if (end < PARAMETER.length || pair.lastIndexOf('%', end) < 0) return false;
  return decode(pair.slice(0, end)) === QUERY_PARAMETER;
}

/** Decodes once, and byte for byte; what is no encoding stays as it is. */
function decode(name: string): string {
  return name.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}
