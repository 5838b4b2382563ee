import { requestIdFrom } from '#shared/request-id.ts';

/** A longer head is not a common request; well below what Node accepts. */
const HEAD_BYTES_MAX = 4096;

/** What the last head said that `scanHead` read; one object is filled again and again. */
export const head = {
  /** The headers that were there, as bits. */
  seen: 0,
  /** `Content-Length`; 0 = none that counts. */
  length: 0,
  /** Where the value of `Authorization: Bearer` begins and ends, and that of `X-Api-Key`; 0 = not there. */
  bearer: 0,
  bearerEnd: 0,
  apiKey: 0,
  apiKeyEnd: 0,
  /** The client's own, well-formed; `''` = none was sent. */
  requestId: '',
};

/**
 * Reads the header lines of the request at `at`, behind its first line, into `head`; where the body begins, or -1 where
 * anything is not as ordinary clients send it. Works on the bytes, which V8 reads three times as fast as the characters
 * of a string.
 */
export function scanHead(bytes: Buffer, at: number, lineLength: number, headers: Headers): number {
  let i = at + lineLength;
  head.seen = 0;
  head.length = 0;
  head.bearer = 0;
  head.apiKey = 0;
  head.requestId = '';
  while (bytes[i] !== CR) {
    const name = i;
    while (NAME[bytes[i] as number] === 1) i++;
    const nameLength = i - name;
    if (nameLength === 0 || bytes[i++] !== COLON) return -1;
    if (bytes[i] === SPACE) i++;
    const value = i;
    while (VISIBLE[bytes[i] as number] === 1) i++;
    if (i === value || bytes[i] !== CR || bytes[i + 1] !== LF) return -1;
    const header = headerOf(headers, bytes, name, nameLength);
    if ((head.seen & header) !== 0) return -1;
    head.seen |= header;
    switch (header) {
      case FOR_NODE:
        return -1;
      case CONTENT_LENGTH:
        head.length = decimal(bytes, value, i);
        break;
      case CONTENT_TYPE:
        if (!isOneOf(JSON_TYPES, bytes, value, i - value)) return -1;
        break;
      case CONNECTION:
        if (!isOneOf(KEEP_ALIVE, bytes, value, i - value)) return -1;
        break;
      case REQUEST_ID:
        head.requestId = bytes.toString('latin1', value, i);
        if (requestIdFrom(head.requestId) !== head.requestId) return -1;
        break;
      case AUTHORIZATION:
        if (bytes[value] === SPACE || bytes[i - 1] === SPACE) return -1;
        // Another scheme is no key.
        if (!named(bytes, value, BEARER)) break;
        head.bearer = value + BEARER.length;
        while (bytes[head.bearer] === SPACE) head.bearer++;
        head.bearerEnd = i;
        break;
      case API_KEY:
        if (bytes[value] === SPACE || bytes[i - 1] === SPACE) return -1;
        head.apiKey = value;
        head.apiKeyEnd = i;
    }
    i += 2;
  }
  return bytes[i + 1] !== LF || i + 2 - at > HEAD_BYTES_MAX ? -1 : i + 2;
}

/** How a request line ends. */
export const VERSION = Buffer.from(' HTTP/1.1\r\n');
const JSON_TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'application/json;charset=utf-8',
].map((type) => Buffer.from(type));
const KEEP_ALIVE = [Buffer.from('keep-alive')];
const BEARER = Buffer.from('bearer ');
export const [CR, SPACE] = [13, 32] as const;
const [LF, COLON, ZERO] = [10, 58, 48] as const;

/** Headers that change how a request is read or answered, each a bit so that a second one is noticed. */
export const [HOST, CONTENT_LENGTH, CONTENT_TYPE, AUTHORIZATION, API_KEY, FORWARDED_FOR, FOR_NODE] = [
  1, 2, 4, 8, 16, 32, 64,
] as const;
const [ANY, CONNECTION, REQUEST_ID] = [0, 128, 256] as const;

const LONGEST_NAME = 'access-control-request-method'.length;

/** Names in lower case, by their length. */
type Headers = readonly (readonly { readonly name: Buffer; readonly header: number }[] | undefined)[];

/** What to notice in a head besides what is noticed in all. */
export function headersOf(own: Readonly<Record<string, number>>): Headers {
  const all = {
    ...own,
    host: HOST,
    connection: CONNECTION,
    'x-request-id': REQUEST_ID,
    expect: FOR_NODE,
    upgrade: FOR_NODE,
    'proxy-connection': FOR_NODE,
    'transfer-encoding': FOR_NODE,
  };
  const headers = Object.entries(all).map(([name, header]) => ({ name: Buffer.from(name), header }));
  return Array.from({ length: LONGEST_NAME + 1 }, (_, length) => {
    const these = headers.filter(({ name }) => name.length === length);
    return these.length > 0 ? these : undefined;
  });
}

const NAME = bytesOf(/[A-Za-z0-9_-]/);
const VISIBLE = bytesOf(/[ -~]/);
/** What a request target is made of; a fragment is not for servers. */
export const TARGET = bytesOf(/[!"$-~]/);
/** Which ASCII bytes are such characters. */
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
      if (named(bytes, at, name)) return header;
    }
  }
  return ANY;
}

/** Whether exactly `expected` is there. */
export function follows(bytes: Buffer, at: number, expected: Buffer): boolean {
  for (let i = 0; i < expected.length; i++) if (bytes[at + i] !== expected[i]) return false;
  return true;
}

function isOneOf(texts: readonly Buffer[], bytes: Buffer, at: number, length: number): boolean {
  for (let i = 0; i < texts.length; i++) {
    const text = texts[i] as Buffer;
    if (text.length === length && named(bytes, at, text)) return true;
  }
  return false;
}

/** Whether `name`, in lower case, is there in any case; `bytes` must be visible ASCII there. */
function named(bytes: Buffer, at: number, name: Buffer): boolean {
  for (let i = 0; i < name.length; i++) if (((bytes[at + i] as number) | 0x20) !== name[i]) return false;
  return true;
}

/** A canonical decimal of at most 7 digits; 0 for anything else. */
function decimal(bytes: Buffer, from: number, to: number): number {
  if (to - from > 7 || bytes[from] === ZERO) return 0;
  let value = 0;
  for (let i = from; i < to; i++) {
    const digit = (bytes[i] as number) - ZERO;
    if (digit < 0 || digit > 9) return 0;
    value = value * 10 + digit;
  }
  return value;
}
