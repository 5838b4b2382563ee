import { isIP } from 'node:net';
import { setting, text } from '#shared/process/load-config.ts';
import { ORIGIN_LENGTH_MAX } from '#shared/rules/origins.ts';
import type { Presenter } from '#shared/rules/presenter.ts';
import type { TrustedProxies } from './trusted-proxies.ts';

/**
 * The places with a name of their own where a client may put its key: `Authorization: Bearer`, `X-Api-Key`, the
 * query parameter `api_key`, or `Authorization: Basic`.
 */
export const SOURCES = ['bearer', 'x-api-key', 'query', 'basic'] as const;
/**
 * A source of `SOURCES`, a header whose whole value is the key (its name in lower case), or a cookie whose value is
 * the key.
 */
export type CredentialSource = (typeof SOURCES)[number] | `header:${string}` | `cookie:${string}`;

/** Maximum number of sources. */
const SOURCES_MAX = 8;

/** A name of a header or a cookie (RFC 9110, RFC 6265). */
const TOKEN = /^[\w!#$%&'*+.^`|~-]{1,100}$/;

/** Headers that mean something else to HTTP, gateways, browsers or this process; in lower case. */
const RESERVED =
  /^(?:authorization|cookie|set-cookie|host|connection|upgrade|te|trailer|transfer-encoding|keep-alive|expect|date|range|via|origin|referer|user-agent|x-request-id|traceparent|tracestate|x-real-ip|x-client-ip|(?:content|accept|if|sec|proxy|forwarded|x-forwarded|x-original|access-control)(?:-.*)?|x[^a-z\d]key[^a-z\d].*)$/;

/** Returns the source for a header of that name, or what is wrong with the name. */
export function headerSource(name: string): CredentialSource | { readonly fault: string } {
  const lowerName = name.toLowerCase();
  if (!TOKEN.test(name)) return { fault: 'must be the name of a header, of at most 100 characters' };
  if (RESERVED.test(lowerName))
    return { fault: 'has a meaning of its own; name a header whose whole value is the key' };
  return lowerName === 'x-api-key' ? lowerName : `header:${lowerName}`;
}

/** Returns the source for a cookie of that name, or what is wrong with the name. */
export const cookieSource = (name: string): CredentialSource | { readonly fault: string } =>
  TOKEN.test(name) ? `cookie:${name}` : { fault: 'must be the name of a cookie, of at most 100 characters' };

/** The setting CREDENTIAL_SOURCES. */
export const credentialSettings = {
  CREDENTIAL_SOURCES: setting({
    parse(value: string): readonly CredentialSource[] {
      const items = value
        .split(',')
        .map((item) => item.trim())
        .filter(Boolean);
      const sources = new Set(items.map(sourceOf));
      if (sources.size > SOURCES_MAX) throw new Error(`has ${sources.size} places`);
      return [...sources];
    },
    default: 'bearer,x-api-key',
    rule: `comma-separated, at most ${SOURCES_MAX}: ${SOURCES.join(', ')}, header:<name>, cookie:<name>`,
  }).help(
    'Where a client of a gateway or of proxy mode may put its key: in `Authorization: Bearer`; in `X-Api-Key`; in the query parameter `api_key` (which ends up in logs); in `Authorization: Basic`, as user name or as password, with the other one empty; in another header, such as `header:apikey`; in a cookie. A request that uses one place twice, or has two different keys, gets 401. Leave out `bearer` if your clients use `Authorization: Bearer` for another token',
  ),
};

function sourceOf(item: string): CredentialSource {
  const [kind, name] = item.split(/:(.*)/s);
  if (name === undefined) {
    const source = SOURCES.find((each) => each === item);
    if (source === undefined) throw new Error(`"${item}" is not allowed`);
    return source;
  }
  const source = kind === 'header' ? headerSource(name) : kind === 'cookie' ? cookieSource(name) : undefined;
  if (source === undefined) throw new Error(`"${item}" is not allowed`);
  if (typeof source === 'object') throw new Error(`"${item}" ${source.fault}`);
  return source;
}

/** Returns the names after `kind:` among the sources. */
export const namesOf = (sources: readonly CredentialSource[], kind: 'header' | 'cookie'): string[] =>
  sources.flatMap((source) => (source.startsWith(`${kind}:`) ? [source.slice(kind.length + 1)] : []));

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

/**
 * Returns a function that returns true for a header that may contain a key, and so must not reach the API; its `name`
 * is in lower case. Of `Cookie`, `withoutKeyCookies` leaves the rest.
 */
export function keyHeaders(sources: readonly CredentialSource[]): (name: string, value: string) => boolean {
  const names = new Set(namesOf(sources, 'header').map(asReadByServers));
  if (sources.includes('x-api-key')) names.add('x-api-key');
  const schemes = sources.filter((source) => source === 'bearer' || source === 'basic');
  const scheme = schemes.length === 0 ? undefined : new RegExp(`^(?:${schemes.join('|')})\\b`, 'i');
  return (name, value) => names.has(name) || (name === 'authorization' && scheme?.test(value) === true);
}

/**
 * Returns the name in lower case as a server may read it. Behind CGI, WSGI or PHP, `X_Key_Id` and `X.Key.Id`
 * cannot be told from `X-Key-Id`.
 */
export function asReadByServers(name: string): string {
  return /[^a-z\d-]/.test(name) ? name.replace(/[^a-z\d]/g, '-') : name;
}

/** Returns a `Cookie` line without the cookies that may have a key; `''` = nothing else is in it. */
export function withoutKeyCookies(line: string, sources: readonly CredentialSource[]): string {
  const names = namesOf(sources, 'cookie');
  const pairs = line.split(';');
  const rest = pairs.filter((pair) => !names.includes(cookieName(pair)));
  return rest.length === pairs.length ? line : trimmed(rest.join(';'));
}

/** Returns path and query without the keys in it, otherwise unchanged. */
export function withoutKey(target: string, sources: readonly CredentialSource[]): string {
  const start = target.indexOf('?');
  if (start < 0 || !sources.includes('query')) return target;
  const rest = target
    .slice(start + 1)
    .split('&')
    .filter((pair) => !holdsKey(pair));
  return rest.length === 0 ? target.slice(0, start) : `${target.slice(0, start)}?${rest.join('&')}`;
}

/** Returns the key in an `Authorization` line; empty if the line has another scheme, or no key. */
export function bearerKey(line: string): string {
  // A fast path for the spelling that most clients use: the regular expression takes twice the time.
  const first = line.startsWith('Bearer ') ? line.charCodeAt(7) : 0;
  if (first > 0x20 && first < 0x7f) return line.slice(7);
  const [whole, key = ''] = /^bearer(?: +(\S.*)?)?$/i.exec(line) ?? [];
  return whole === undefined ? unlessOther(line, 'bearer') : key;
}

/**
 * Returns an empty text for an `Authorization` line with another scheme. Any other line, such as a key without a scheme
 * or behind a colon, was meant to show a key: nobody may pass with it as without one.
 */
function unlessOther(line: string, scheme: 'bearer' | 'basic'): string {
  const [, other] = /^([\w!#$%&'*+.^`|~-]+) +[^ ]/.exec(line) ?? [];
  return line === '' || (other !== undefined && other.toLowerCase() !== scheme) ? '' : UNREADABLE;
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
    case 'basic':
      return (headers['authorization'] ?? []).flatMap(basicKeys);
    default:
      return source.startsWith('cookie:')
        ? cookieValues(headers['cookie'], source.slice('cookie:'.length))
        : (headers[source.slice('header:'.length)] ?? []);
  }
}

/** Stands for a credential that nobody can read: no key has this character. */
const UNREADABLE = '\ufffd';

/**
 * Returns the key in an `Authorization: Basic` line, which is the user name or the password; both if both are there
 * and differ. An empty text if the line has another scheme.
 */
function basicKeys(line: string): readonly string[] {
  const [whole, token = ''] = /^basic(?: +(.*))?$/i.exec(line) ?? [];
  if (whole === undefined) return [unlessOther(line, 'basic')];
  if (token === '') return [''];
  const text = Buffer.from(token, 'base64').toString('latin1');
  const colon = text.indexOf(':');
  // Node decodes anything. What it does not encode again to the same was not base64.
  if (
    colon < 0 ||
    Buffer.from(text, 'latin1').toString('base64').replace(/=+$/, '') !== token.replace(/=+$/, '')
  )
    return [UNREADABLE];
  const [user, password] = [text.slice(0, colon), text.slice(colon + 1)];
  return user === '' || user === password ? [password] : password === '' ? [user] : [user, password];
}

/** Returns the values of all cookies of that name. Several lines count as one: HTTP/2 splits a long one. */
function cookieValues(lines: readonly string[] = [], name: string): string[] {
  return lines
    .flatMap((line) => line.split(';'))
    .filter((pair) => cookieName(pair) === name)
    .map((pair) => decoded(trimmed(pair.slice(pair.indexOf('=') + 1)).replace(/^"(.*)"$/, '$1')));
}

/** Returns a text without the white space of HTTP around it, which is less than that of JavaScript. */
const trimmed = (text: string) => text.replace(/^[ \t]+|[ \t]+$/g, '');

/** Returns the name in `name=value`; `''` = it has none. */
const cookieName = (pair: string) => trimmed(pair.slice(0, Math.max(0, pair.indexOf('='))));

/** The query parameter that may contain a key. */
export const QUERY_PARAMETER = 'api_key';
const PARAMETER = `${QUERY_PARAMETER}=`;

/** Returns the names of the parameters with keys, as spelt in the query. */
export function keyParameters(target: string): string[] {
  return keyPairs(target).map((pair) => pair.slice(0, pair.indexOf('=')));
}

function queryKeys(target: string): string[] {
  return keyPairs(target).map((pair) => decoded(pair.slice(pair.indexOf('=') + 1)));
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

/** Decodes a value once, because clients encode what they write into a query or a cookie. Leaves invalid ones unchanged. */
function decoded(value: string): string {
  if (!value.includes('%')) return value;
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

/** Decodes percent-encoding once, byte by byte. Leaves invalid encodings unchanged. */
function decode(name: string): string {
  return name.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

/**
 * Returns what a request says of the web page that sent it: `Origin`, or else the origin of `Referer`. undefined = it
 * says nothing, or more than one thing.
 */
export function originIn({ origin, referer }: HeaderLines): string | undefined {
  const lines = origin ?? referer;
  if (lines?.length !== 1) return undefined;
  const [text] = origin ?? [/^[^/]*\/\/[^/?#]*/.exec(lines[0] ?? '')?.[0]];
  return text !== undefined && text.length <= ORIGIN_LENGTH_MAX ? text : undefined;
}

/** Returns the presenter of a key: the client at an address, as the headers of its request tell more of it. */
export const presenterFrom = (headers: HeaderLines, clientIp: string | undefined): Presenter => ({
  clientIp,
  origin: originIn(headers),
});

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
  CREDENTIAL_SOURCES: sources,
}: {
  readonly CLIENT_IP_HEADER: string;
  readonly CREDENTIAL_SOURCES: readonly CredentialSource[];
}): string[] => [
  ...(/^([A-Za-z0-9-]{1,29})?$/.test(name)
    ? []
    : ['CLIENT_IP_HEADER: must be the name of a header, of at most 29 letters, digits and `-`']),
  ...(sources.includes(`header:${name.toLowerCase()}`)
    ? [`CREDENTIAL_SOURCES: header:${name} is CLIENT_IP_HEADER, which has an address and no key`]
    : []),
];

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
