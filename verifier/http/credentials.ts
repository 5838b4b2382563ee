import { isIP } from 'node:net';
import { text } from '#shared/process/load-config.ts';
import type { TrustedProxies } from './trusted-proxies.ts';

/**
 * The places where a client may put its key: `Authorization: Bearer`, `X-Api-Key`, or the query parameter
 * `api_key`.
 */
export const SOURCES = ['bearer', 'x-api-key', 'query'] as const;
/** One of `SOURCES`. */
export type Source = (typeof SOURCES)[number];
/** A source of `SOURCES`, or a header whose whole value is the key. The name is in lower case. */
export type CredentialSource = Source | `header:${string}`;

/**
 * Header lines by name in lower case. Each line is a value by itself, as in `headersDistinct` of `node:http`.
 */
export type HeaderLines = Readonly<Record<string, readonly string[] | undefined>>;

/** The key that a client presents, or the reason why there is no usable key. */
export type Credential = { readonly key: string } | { readonly fault: CredentialFault };
/**
 * `KEY_MISSING`: no enabled source has a key. `KEY_AMBIGUOUS`: one source occurs twice, or two sources have
 * different keys.
 */
export type CredentialFault = 'KEY_MISSING' | 'KEY_AMBIGUOUS';

/**
 * Finds the key of a client's request in the enabled sources. Never chooses between two keys: this process
 * and the API behind it must see the same one.
 * @param target path and query of the client's request; only read if `query` is enabled
 */
export function credentialOf(
  headers: HeaderLines,
  target: string | undefined,
  sources: readonly CredentialSource[],
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

/** Returns true if a header may contain a key and so must not reach the API. `name` is in lower case. */
export function mayHoldKey(name: string, value: string, sources: readonly Source[]): boolean {
  if (name === 'authorization') return sources.includes('bearer') && /^bearer\b/i.test(value);
  return name === 'x-api-key' && sources.includes('x-api-key');
}

/** Returns path and query without the keys in it, otherwise unchanged. */
export function withoutKey(target: string, sources: readonly Source[]): string {
  const start = target.indexOf('?');
  if (start < 0 || !sources.includes('query')) return target;
  const rest = target
    .slice(start + 1)
    .split('&')
    .filter((pair) => !holdsKey(pair));
  return rest.length === 0 ? target.slice(0, start) : `${target.slice(0, start)}?${rest.join('&')}`;
}

/** Returns the key in an `Authorization` line; empty if the line has another scheme. */
export function bearerKey(line: string): string {
  // A fast path for the spelling that most clients use: the regular expression takes twice the time.
  const first = line.startsWith('Bearer ') ? line.charCodeAt(7) : 0;
  if (first > 0x20 && first < 0x7f) return line.slice(7);
  return /^bearer +(\S.*)$/i.exec(line)?.[1] ?? '';
}

function valuesOf(source: CredentialSource, headers: HeaderLines, target = ''): readonly string[] {
  switch (source) {
    case 'bearer':
      // A line with another scheme has no key, but a second Authorization line makes the request ambiguous
      // all the same.
      return (headers['authorization'] ?? []).map(bearerKey);
    case 'x-api-key':
      return headers['x-api-key'] ?? [];
    case 'query':
      return queryKeys(target);
    default:
      return headers[source.slice('header:'.length)] ?? [];
  }
}

/** The query parameter that may contain a key. */
export const QUERY_PARAMETER = 'api_key';
const PARAMETER = `${QUERY_PARAMETER}=`;

/** Returns the names of the parameters with keys, as spelt in the query. */
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

/** Returns true if a server that decodes names would read this pair as the key's parameter. */
function holdsKey(pair: string): boolean {
  if (pair.startsWith(PARAMETER)) return true;
  const end = pair.indexOf('=');
  // An encoded name is never shorter than the plain one.
  if (end < PARAMETER.length || pair.lastIndexOf('%', end) < 0) return false;
  return decode(pair.slice(0, end)) === QUERY_PARAMETER;
}

/** Decodes percent-encoding once, byte by byte. Leaves invalid encodings unchanged. */
function decode(name: string): string {
  return name.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

/** The header to which each proxy on the way adds the address from which it got the request. */
const FORWARDED_FOR = 'x-forwarded-for';

export const clientIpSettings = {
  CLIENT_IP_HEADER: text('').help(
    "Header in which your gateway tells this verifier the client's address, such as `x-real-ip`. The gateway must set it in every request, whatever the client sent, as the recipes in deploy/gateways do. Of several addresses in X-Forwarded-For, the last one counts that is not in TRUSTED_PROXIES. If empty, HTTP gateways cannot use keys with `allowedIps`. Envoy over gRPC and proxy mode do not need it",
  ),
};

/** Returns the faults of the settings for addresses. */
export const clientIpFaults = ({
  CLIENT_IP_HEADER: name,
}: {
  readonly CLIENT_IP_HEADER: string;
}): string[] =>
  /^([A-Za-z0-9-]{1,29})?$/.test(name)
    ? []
    : ['CLIENT_IP_HEADER: must be the name of a header, of at most 29 letters, digits and `-`'];

/** The addresses of clients, from where this process, or somebody whom it trusts, knows them. */
export class ClientIps {
  /** Name of the header in which gateways tell the address, in lower case; `''` = none. */
  readonly header: string;
  readonly #trusted: TrustedProxies;

  constructor(header: string, trusted: TrustedProxies) {
    this.header = header.toLowerCase();
    this.#trusted = trusted;
  }

  /** Returns the address that a gateway tells in its headers; undefined = none, or more than one. */
  inHeaders(headers: HeaderLines): string | undefined {
    const lines = this.header === '' ? undefined : headers[this.header];
    if (lines === undefined || (lines.length > 1 && this.header !== FORWARDED_FOR)) return undefined;
    return this.inHeader(lines.join(','));
  }

  /** Returns the address in a value of the header; undefined = none. */
  inHeader(value: string): string | undefined {
    if (this.header === FORWARDED_FOR) return this.#lastIn(value);
    return addressIn(value);
  }

  /**
   * Returns the address of the client behind a connection.
   * @param address the other end's; undefined = it has none, or has hung up
   * @param forwardedFor its X-Forwarded-For, which counts only from a trusted proxy
   */
  behind(address: string | undefined, forwardedFor: string | undefined): string | undefined {
    if (forwardedFor === undefined || !this.#trusted.has(address)) return address;
    return this.#lastIn(forwardedFor);
  }

  /** Returns the last address that is not a trusted proxy's; the first one if all are. */
  #lastIn(list: string): string | undefined {
    let address: string | undefined;
    for (const item of list.split(',').reverse()) {
      address = addressIn(item);
      if (!this.#trusted.has(address)) break;
    }
    return address;
  }
}

function addressIn(value: string): string | undefined {
  const address = value.trim();
  return isIP(address) === 0 ? undefined : address;
}
