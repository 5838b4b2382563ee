import type { Presenter } from '#shared/rules/presenter.ts';
import { requestIdFrom } from '#shared/rules/request-id.ts';
import { type CredentialSource, namesOf, originIn } from '../http/credentials.ts';

/** Maximum length of a common request's head, well below Node's limit. */
export const HEAD_BYTES_MAX = 4096;

/** The contents of a head. Each connection has one such object and reuses it. */
export class Head {
  /** The headers in the request, as bits. */
  headerBits = 0;
  /** `Content-Length`; 0 if absent. */
  length = 0;
  /** The content of `Connection`. */
  keepsAlive = false;
  closes = false;
  /**
   * The positions at which the values of `Authorization: Bearer` and of `X-Api-Key` begin and end; 0 =
   * absent.
   */
  bearer = 0;
  bearerEnd = 0;
  apiKey = 0;
  apiKeyEnd = 0;
  /** The same of the header with the client's address, if it is noticed. */
  clientIp = 0;
  clientIpEnd = 0;
  /** The same of `Origin` and of `Referer`. */
  origin = 0;
  originEnd = 0;
  referer = 0;
  refererEnd = 0;
  /** The client's own request id, if well-formed; `''` = none. */
  requestId = '';
}

/** Returned instead of the body's position: ordinary clients do not send such a head. */
const UNCOMMON = -1;
/** Returned instead of the body's position: the head is common so far, but incomplete. */
export const PARTIAL = -2;

/**
 * Reads the header lines of the request at `at`, after its first line, into `head`. Returns the position of
 * the body, or UNCOMMON, or PARTIAL; PARTIAL only if Node would wait for more, too. Reads bytes, because V8
 * reads them three times as fast as the characters of a string.
 */
export function scanHead(
  bytes: Buffer,
  at: number,
  lineLength: number,
  headers: Headers,
  head: Head,
): number {
  let i = at + lineLength;
  head.headerBits = 0;
  head.length = 0;
  head.keepsAlive = false;
  head.closes = false;
  head.bearer = 0;
  head.apiKey = 0;
  head.clientIp = 0;
  head.origin = 0;
  head.referer = 0;
  head.requestId = '';
  while (bytes[i] !== CR) {
    const name = i;
    while (NAME[bytes[i] as number] === 1) i++;
    const nameLength = i - name;
    if (i >= bytes.length) return unlessTooLong(bytes, at);
    if (nameLength === 0 || bytes[i++] !== COLON) return UNCOMMON;
    if (bytes[i] === SPACE) i++;
    const value = i;
    while (VISIBLE[bytes[i] as number] === 1) i++;
    const header = headerOf(headers, bytes, name, nameLength);
    if ((head.headerBits & header) !== 0 || header === FOR_NODE) return UNCOMMON;
    if (i + 1 >= bytes.length) {
      // Node refuses a wrong length at its first wrong byte.
      const isWrong = header === CONTENT_LENGTH && i > value && decimal(bytes, value, i) < 0;
      return isWrong || (i < bytes.length && (i === value || bytes[i] !== CR))
        ? UNCOMMON
        : unlessTooLong(bytes, at);
    }
    if (i === value || bytes[i] !== CR || bytes[i + 1] !== LF) return UNCOMMON;
    head.headerBits |= header;
    switch (header) {
      case CONTENT_LENGTH:
        head.length = decimal(bytes, value, i);
        if (head.length < 0) return UNCOMMON;
        break;
      case CONTENT_TYPE:
        if (!isOneOf(JSON_TYPES, bytes, value, i - value)) return UNCOMMON;
        break;
      case CONNECTION:
        if (!readConnection(bytes, value, i, head)) return UNCOMMON;
        break;
      case UPGRADE:
        if (!isOneOf(DECLINED_UPGRADES, bytes, value, i - value)) return UNCOMMON;
        break;
      case REQUEST_ID:
        head.requestId = bytes.toString('latin1', value, i);
        if (requestIdFrom(head.requestId) !== head.requestId) return UNCOMMON;
        break;
      case AUTHORIZATION:
        if (bytes[value] === SPACE || bytes[i - 1] === SPACE) return UNCOMMON;
        // A value with another scheme is no key. What has no scheme at all is for Node.
        if (!hasName(bytes, value, BEARER)) {
          if (!hasScheme(bytes, value)) return UNCOMMON;
          break;
        }
        head.bearer = value + BEARER.length;
        while (bytes[head.bearer] === SPACE) head.bearer++;
        head.bearerEnd = i;
        break;
      case API_KEY:
        if (bytes[value] === SPACE || bytes[i - 1] === SPACE) return UNCOMMON;
        head.apiKey = value;
        head.apiKeyEnd = i;
        break;
      case CLIENT_IP:
        head.clientIp = value;
        head.clientIpEnd = i;
        break;
      case ORIGIN:
        head.origin = value;
        head.originEnd = i;
        break;
      case REFERER:
        head.referer = value;
        head.refererEnd = i;
    }
    i += 2;
  }
  if (i + 1 >= bytes.length) return unlessTooLong(bytes, at);
  return bytes[i + 1] !== LF || i + 2 - at > HEAD_BYTES_MAX ? UNCOMMON : i + 2;
}

/** Returns true if a value begins with the scheme of a credential and a space. */
function hasScheme(bytes: Buffer, at: number): boolean {
  let i = at;
  while (NAME[bytes[i] as number] === 1) i++;
  return i > at && bytes[i] === SPACE;
}

/** Returns PARTIAL for a head that ends with `bytes`, or UNCOMMON if it is already too long. */
const unlessTooLong = (bytes: Buffer, at: number) =>
  bytes.length - at > HEAD_BYTES_MAX ? UNCOMMON : PARTIAL;

/**
 * Reads a `Connection` header whose tokens are all known: `close`, `keep-alive`, or tokens that a server may
 * ignore. Returns false if it contains any other token.
 */
function readConnection(bytes: Buffer, from: number, to: number, head: Head): boolean {
  for (let at = from; ; ) {
    let end = at;
    while (end < to && bytes[end] !== COMMA) end++;
    const length = end - at;
    if (isOneOf(KEEP_ALIVE, bytes, at, length)) head.keepsAlive = true;
    else if (isOneOf(CLOSE, bytes, at, length)) head.closes = true;
    else if (!isOneOf(IGNORED_TOKENS, bytes, at, length)) return false;
    // A request with both tokens is for Node.
    if (end >= to) return !(head.keepsAlive && head.closes);
    at = end + 1;
    while (bytes[at] === SPACE) at++;
  }
}

/** The end of a request line. */
export const VERSION = Buffer.from(' HTTP/1.1\r\n');
const JSON_TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'application/json;charset=utf-8',
].map((type) => Buffer.from(type));
const KEEP_ALIVE = [Buffer.from('keep-alive')];
const CLOSE = [Buffer.from('close')];
/** Tokens that a server may ignore: offers, or headers about this hop only. */
const IGNORED_TOKENS = ['te', 'upgrade', 'http2-settings'].map((token) => Buffer.from(token));
/** The values of `Upgrade` that all listeners here decline. */
const DECLINED_UPGRADES = [Buffer.from('h2c')];
const BEARER = Buffer.from('bearer ');
export const SPACE = 32;
const [CR, LF, COLON, ZERO, COMMA] = [13, 10, 58, 48, 44] as const;

/**
 * Headers that change how a request is read or answered. Each is a bit, so that a second occurrence is
 * noticed.
 */
export const [HOST, CONTENT_LENGTH, CONTENT_TYPE, AUTHORIZATION, FOR_NODE, UPGRADE, CLIENT_IP] = [
  1, 2, 4, 8, 64, 512, 1024,
] as const;
const [OTHER_HEADER, API_KEY, FORWARDED_FOR, CONNECTION, REQUEST_ID, ORIGIN, REFERER] = [
  0, 16, 32, 128, 256, 2048, 4096,
] as const;

/** Header names in lower case, by their length. */
export type Headers = readonly (readonly { readonly name: Buffer; readonly header: number }[] | undefined)[];

/** Returns the headers to notice: `own` and those that are noticed in every head. */
export function headersOf(own: Readonly<Record<string, number>>): Headers {
  const all = {
    ...own,
    host: HOST,
    connection: CONNECTION,
    'x-request-id': REQUEST_ID,
    expect: FOR_NODE,
    upgrade: UPGRADE,
    'proxy-connection': FOR_NODE,
    'transfer-encoding': FOR_NODE,
  };
  const headers = Object.entries(all).map(([name, header]) => ({ name: Buffer.from(name), header }));
  const longest = Math.max(...headers.map(({ name }) => name.length));
  return Array.from({ length: longest + 1 }, (_, length) => {
    const sameLength = headers.filter(({ name }) => name.length === length);
    return sameLength.length > 0 ? sameLength : undefined;
  });
}

const NAME = bytesOf(/[A-Za-z0-9_-]/);
const VISIBLE = bytesOf(/[ -~]/);
/** Characters of a request target. A fragment is never sent to a server. */
export const TARGET = bytesOf(/[!"$-~]/);
/** Returns a table that marks the ASCII bytes that match. */
export function bytesOf(pattern: RegExp): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) =>
    byte < 128 && pattern.test(String.fromCharCode(byte)) ? 1 : 0,
  );
}

function headerOf(headers: Headers, bytes: Buffer, at: number, length: number): number {
  const candidates = length < headers.length ? headers[length] : undefined;
  if (candidates !== undefined) {
    for (let i = 0; i < candidates.length; i++) {
      const { name, header } = candidates[i] as (typeof candidates)[number];
      if (hasName(bytes, at, name)) return header;
    }
  }
  return OTHER_HEADER;
}

/** Returns true if `bytes` end within `expected` and match it so far. */
export function endsIn(bytes: Buffer, at: number, expected: Buffer): boolean {
  const length = bytes.length - at;
  if (length >= expected.length) return false;
  for (let i = 0; i < length; i++) if (bytes[at + i] !== expected[i]) return false;
  return true;
}

/** Returns true if `expected` is exactly at `at`. */
export function follows(bytes: Buffer, at: number, expected: Buffer): boolean {
  for (let i = 0; i < expected.length; i++) if (bytes[at + i] !== expected[i]) return false;
  return true;
}

function isOneOf(texts: readonly Buffer[], bytes: Buffer, at: number, length: number): boolean {
  for (let i = 0; i < texts.length; i++) {
    const text = texts[i] as Buffer;
    if (text.length === length && hasName(bytes, at, text)) return true;
  }
  return false;
}

/**
 * Returns true if `name`, given in lower case, is at `at` in any case. `bytes` must be visible ASCII there.
 */
function hasName(bytes: Buffer, at: number, name: Buffer): boolean {
  for (let i = 0; i < name.length; i++) if (((bytes[at + i] as number) | 0x20) !== name[i]) return false;
  return true;
}

/** Returns a canonical decimal of at most 7 digits; -1 for anything else. */
function decimal(bytes: Buffer, from: number, to: number): number {
  if (to - from > 7 || (bytes[from] === ZERO && to - from > 1)) return -1;
  let value = 0;
  for (let i = from; i < to; i++) {
    const digit = (bytes[i] as number) - ZERO;
    if (digit < 0 || digit > 9) return -1;
    value = value * 10 + digit;
  }
  return value;
}

/** The places in which the lane finds the keys of clients. */
export interface KeyPlaces {
  readonly headers: Headers;
  readonly takesBearer: boolean;
  /** True if `Authorization` may have a key in another scheme, which Node reads. */
  readonly takesBasic: boolean;
}

/**
 * Returns where the lane finds keys: in `Authorization: Bearer`, and in headers of which the whole value is the key. All
 * of these have one bit, so a request with two of them goes to Node. undefined = Node must find all keys.
 * @param own further headers to notice
 */
export function keyPlacesOf(
  sources: readonly CredentialSource[],
  own: Readonly<Record<string, number>>,
): KeyPlaces | undefined {
  const names = [...(sources.includes('x-api-key') ? ['x-api-key'] : []), ...namesOf(sources, 'header')];
  if (sources.includes('query') || names.some((name) => !/^[a-z\d-]+$/.test(name))) return undefined;
  return {
    headers: headersOf({
      ...own,
      ...Object.fromEntries(names.map((name) => [name, API_KEY])),
      ...(namesOf(sources, 'cookie').length > 0 ? { cookie: FOR_NODE } : {}),
      authorization: AUTHORIZATION,
      origin: ORIGIN,
      referer: REFERER,
    }),
    takesBearer: sources.includes('bearer'),
    takesBasic: sources.includes('basic'),
  };
}

/** Returns the key in a head; undefined = it has none, or Node must find it. */
export function keyIn(bytes: Buffer, head: Head, { takesBearer, takesBasic }: KeyPlaces): string | undefined {
  if (takesBasic && head.bearer === 0 && (head.headerBits & AUTHORIZATION) !== 0) return undefined;
  const bearer =
    takesBearer && head.bearer > 0 ? bytes.toString('latin1', head.bearer, head.bearerEnd) : undefined;
  if (head.apiKey === 0) return bearer;
  const apiKey = bytes.toString('latin1', head.apiKey, head.apiKeyEnd);
  return bearer === undefined || bearer === apiKey ? apiKey : undefined;
}

/** Returns what `originIn` returns of the head. */
export function originInHead(bytes: Buffer, head: Head): string | undefined {
  if (head.origin === 0 && head.referer === 0) return undefined;
  const line = (from: number, to: number) =>
    from === 0 ? undefined : [bytes.toString('latin1', from, to).trim()];
  return originIn({
    origin: line(head.origin, head.originEnd),
    referer: line(head.referer, head.refererEnd),
  });
}

/** The facts of a presenter besides the address. */
type HeadFacts = Omit<Presenter, 'clientIp'>;

/** A complete call to the API behind this process. */
export interface Call {
  readonly method: string;
  readonly target: string;
  /** Header names and values, alternating. */
  readonly rawHeaders: readonly string[];
  readonly key: string;
  /** The client's own request id, if well-formed; `''` = none. */
  readonly requestId: string;
  /** `Connection`, which may name headers that are not passed on. */
  readonly connection: string | undefined;
  /** The facts that the head has of who presents the key. */
  readonly facts: HeadFacts;
  /** `X-Forwarded-For`. */
  readonly forwardedFor: string | undefined;
  /** True if the connection is closed after the answer. */
  readonly isLast: boolean;
  /** A copy of the body; null = none. */
  readonly body: Buffer | null;
  /** Length of the whole call, in bytes. */
  readonly length: number;
}

/**
 * Recognizes a common call at the start of `bytes`: plain, with one key (or the same key twice), and with a
 * body only if the body has arrived. `partial` = the beginning of such a head. undefined = Node must read it.
 * @param places from `callPlacesOf`
 */
export function parseCall(bytes: Buffer, places: KeyPlaces, head: Head): Call | 'partial' | undefined {
  const method = METHODS.find(({ start }) => follows(bytes, 0, start));
  if (method === undefined)
    return METHODS.some(({ start }) => endsIn(bytes, 0, start)) ? 'partial' : undefined;
  const target = method.start.length - 1;
  let i = target;
  while (TARGET[bytes[i] as number] === 1) i++;
  if (!follows(bytes, i, VERSION)) {
    return endsIn(bytes, i, VERSION) && i < TARGET_LENGTH_MAX ? 'partial' : undefined;
  }
  const lines = i + VERSION.length;
  const body = scanHead(bytes, 0, lines, places.headers, head);
  if (body < 0) return body === PARTIAL ? 'partial' : undefined;
  if ((head.headerBits & HOST) === 0) return undefined;
  const length = body + head.length;
  // Passes the head on without waiting: a client that streams a body may expect an answer before the body's
  // end.
  if (length > bytes.length || head.length > SHORT_BODY_BYTES_MAX) return undefined;
  const text = bytes.toString('latin1', 0, body);
  const key = keyIn(bytes, head, places);
  if (key === undefined) return undefined;
  const rawHeaders: string[] = [];
  let connection: string | undefined;
  let forwardedFor: string | undefined;
  for (let at = lines; bytes[at] !== CR; ) {
    const colon = text.indexOf(':', at);
    const end = text.indexOf('\r', colon);
    const value = text.slice(colon + 1, end).trim();
    const name = text.slice(at, colon);
    rawHeaders.push(name, value);
    if ((head.headerBits & FORWARDED_FOR) !== 0 && name.toLowerCase() === 'x-forwarded-for')
      forwardedFor = value;
    if ((head.headerBits & CONNECTION) !== 0 && name.toLowerCase() === 'connection') connection = value;
    at = end + 2;
  }
  return {
    method: method.name,
    target: text.slice(target, i),
    rawHeaders,
    key,
    requestId: head.requestId,
    connection,
    facts: { origin: originInHead(bytes, head) },
    forwardedFor,
    isLast: head.closes,
    body: head.length === 0 ? null : Buffer.from(bytes.subarray(body, length)),
    length,
  };
}

/** Maximum length of a common call's body, as much as one read brings. */
const SHORT_BODY_BYTES_MAX = 65_536;

/** If a target is longer, the lane does not wait for its end. */
const TARGET_LENGTH_MAX = 2048;

/** The beginning of each request line, with the first byte of the target. */
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'].map((name) => ({
  name,
  start: Buffer.from(`${name} /`),
}));

/** Returns where calls have their keys; undefined = Node must find all keys. */
export const callPlacesOf = (sources: readonly CredentialSource[]): KeyPlaces | undefined =>
  keyPlacesOf(sources, { 'content-length': CONTENT_LENGTH, 'x-forwarded-for': FORWARDED_FOR });
