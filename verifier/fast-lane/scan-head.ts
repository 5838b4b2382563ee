import { requestIdFrom } from '#shared/contract/request-id.ts';

/** A longer head is not a common request; well below what Node accepts. */
const HEAD_BYTES_MAX = 4096;

/** A head that was read; each connection fills one again and again. */
export class Head {
  /** The headers that were there, as bits. */
  headerBits = 0;
  /** `Content-Length`; 0 where there is none. */
  length = 0;
  /** The wish of `Connection`. */
  keepsAlive = false;
  closes = false;
  /** Places at which the value of `Authorization: Bearer` begins and ends, and that of `X-Api-Key`; 0 = not there. */
  bearer = 0;
  bearerEnd = 0;
  apiKey = 0;
  apiKeyEnd = 0;
  /** The client's own, well-formed; `''` = none was sent. */
  requestId = '';
}

/** In place of where a body begins: not as ordinary clients send it. */
const UNCOMMON = -1;
/** Likewise: as they do, so far as it is here, but not whole. */
export const PARTIAL = -2;

/**
 * Reads the header lines of the request at `at`, behind its first line, into `head`. Returns where the body begins, or ODD, or
 * PARTIAL, which it is only where Node would wait for more, too. Works on the bytes, which V8 reads three times as fast as
 * the characters of a string.
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
  head.requestId = '';
  while (bytes[i] !== CR) {
    const name = i;
    while (NAME[bytes[i] as number] === 1) i++;
    const nameLength = i - name;
    if (i >= bytes.length) return judgeEnd(bytes, at);
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
        : judgeEnd(bytes, at);
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
        // Another scheme is no key.
        if (!hasName(bytes, value, BEARER)) break;
        head.bearer = value + BEARER.length;
        while (bytes[head.bearer] === SPACE) head.bearer++;
        head.bearerEnd = i;
        break;
      case API_KEY:
        if (bytes[value] === SPACE || bytes[i - 1] === SPACE) return UNCOMMON;
        head.apiKey = value;
        head.apiKeyEnd = i;
    }
    i += 2;
  }
  if (i + 1 >= bytes.length) return judgeEnd(bytes, at);
  return bytes[i + 1] !== LF || i + 2 - at > HEAD_BYTES_MAX ? UNCOMMON : i + 2;
}

/** Judges a head that ends with `bytes`. */
const judgeEnd = (bytes: Buffer, at: number) => (bytes.length - at > HEAD_BYTES_MAX ? UNCOMMON : PARTIAL);

/** Reads `Connection` where it names only what is known: what shall become of the connection, and what a server may ignore. */
function readConnection(bytes: Buffer, from: number, to: number, head: Head): boolean {
  for (let at = from; ; ) {
    let end = at;
    while (end < to && bytes[end] !== COMMA) end++;
    const length = end - at;
    if (isOneOf(KEEP_ALIVE, bytes, at, length)) head.keepsAlive = true;
    else if (isOneOf(CLOSE, bytes, at, length)) head.closes = true;
    else if (!isOneOf(IGNORED_TOKENS, bytes, at, length)) return false;
    // One that asks for both is for Node.
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
/** An offer, and what is said of the next connection only: to answer as if it were not there is allowed. */
const IGNORED_TOKENS = ['te', 'upgrade', 'http2-settings'].map((token) => Buffer.from(token));
/** The `Upgrade` that no listener here takes up. */
const DECLINED_UPGRADES = [Buffer.from('h2c')];
const BEARER = Buffer.from('bearer ');
export const [CR, SPACE] = [13, 32] as const;
const [LF, COLON, ZERO, COMMA] = [10, 58, 48, 44] as const;

/** Headers that change how a request is read or answered, each a bit so that a second one is noticed. */
export const [
  HOST,
  CONTENT_LENGTH,
  CONTENT_TYPE,
  AUTHORIZATION,
  API_KEY,
  FORWARDED_FOR,
  FOR_NODE,
  CONNECTION,
  UPGRADE,
] = [1, 2, 4, 8, 16, 32, 64, 128, 512] as const;
const [OTHER_HEADER, REQUEST_ID] = [0, 256] as const;

const LONGEST_NAME = 'access-control-request-method'.length;

/** Names in lower case, by their length. */
type Headers = readonly (readonly { readonly name: Buffer; readonly header: number }[] | undefined)[];

/** Lists the headers to notice, besides those that are noticed in every head. */
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
  return Array.from({ length: LONGEST_NAME + 1 }, (_, length) => {
    const sameLength = headers.filter(({ name }) => name.length === length);
    return sameLength.length > 0 ? sameLength : undefined;
  });
}

const NAME = bytesOf(/[A-Za-z0-9_-]/);
const VISIBLE = bytesOf(/[ -~]/);
/** Characters of a request target; a fragment is not for servers. */
export const TARGET = bytesOf(/[!"$-~]/);
/** Marks the ASCII bytes that match. */
export function bytesOf(pattern: RegExp): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) =>
    byte < 128 && pattern.test(String.fromCharCode(byte)) ? 1 : 0,
  );
}

function headerOf(headers: Headers, bytes: Buffer, at: number, length: number): number {
  const candidates = length <= LONGEST_NAME ? headers[length] : undefined;
  if (candidates !== undefined) {
    for (let i = 0; i < candidates.length; i++) {
      const { name, header } = candidates[i] as (typeof candidates)[number];
      if (hasName(bytes, at, name)) return header;
    }
  }
  return OTHER_HEADER;
}

/** Tells whether `bytes` end within `expected`, and so far have nothing else there. */
export function endsIn(bytes: Buffer, at: number, expected: Buffer): boolean {
  const length = bytes.length - at;
  if (length >= expected.length) return false;
  for (let i = 0; i < length; i++) if (bytes[at + i] !== expected[i]) return false;
  return true;
}

/** Tells whether exactly `expected` is there. */
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

/** Tells whether `name`, in lower case, is there in any case; `bytes` must be visible ASCII there. */
function hasName(bytes: Buffer, at: number, name: Buffer): boolean {
  for (let i = 0; i < name.length; i++) if (((bytes[at + i] as number) | 0x20) !== name[i]) return false;
  return true;
}

/** A canonical decimal of at most 7 digits; -1 for anything else. */
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
