import { requestIdFrom } from '#shared/request-id.ts';
import { type AuthzSettings, authzPath } from './authz.ts';
import { parseJson } from './body.ts';
import { API_ID, KEY_LENGTH_MAX, questionOf } from './verify-key.ts';

/** What was recognised; one object is filled again and again. */
export interface Recognised {
  key: string;
  apiId: string | undefined;
  /** The client's own, well-formed; `''` = none was sent. */
  requestId: string;
  /** Whether a gateway asks, and is answered as one. */
  fromGateway: boolean;
  /** Bytes of the whole request. */
  length: number;
}

/** A longer head is not the common request; well below what Node accepts. */
const HEAD_BYTES_MAX = 4096;

/**
 * Recognises a common request, whole, at `at`: exactly the shape that ordinary clients of verifyKey and gateways
 * send, where Node's parser has no second opinion. Everything else is not wrong but false: it is for Node to judge.
 * Works on the bytes, which V8 reads three times as fast as the characters of a string, and allocates little but
 * the texts it returns.
 * @param bodyBytesMax largest body, bytes
 * @param authz undefined = gateways are not answered
 */
export function recognise(
  bytes: Buffer,
  at: number,
  bodyBytesMax: number,
  authz: AuthzSettings | undefined,
  found: Recognised,
): boolean {
  found.fromGateway = false;
  if (!follows(bytes, at, VERIFY_KEY)) return authz !== undefined && recogniseAuthz(bytes, at, authz, found);
  const body = scanHead(bytes, at, VERIFY_KEY.length, VERIFY_KEY_HEADERS, found);
  const end = body + head.length;
  found.length = end - at;
  if (body < 0 || (head.seen & NEEDED) !== NEEDED) return false;
  if (head.length === 0 || head.length > bodyBytesMax || end > bytes.length) return false;
  return scanBody(bytes, body, end, found) || parseBody(bytes.subarray(body, end), found);
}

/** A GET below `/authz/` without a body and with one key, the same where it comes twice. */
function recogniseAuthz(bytes: Buffer, at: number, authz: AuthzSettings, found: Recognised): boolean {
  // Where the key may be in the query, what the gateway says of the client's target counts too.
  if (!follows(bytes, at, GET_AUTHZ) || authz.sources.includes('query')) return false;
  const target = at + METHOD_LENGTH;
  let i = target;
  while (TARGET[bytes[i] as number] === 1) i++;
  if (!follows(bytes, i, VERSION) || !isOurs(bytes, target, i)) return false;
  const end = scanHead(bytes, at, i + VERSION.length - at, AUTHZ_HEADERS, found);
  if (end < 0 || (head.seen & HOST) === 0) return false;
  found.key = '';
  if (head.bearer > 0 && authz.sources.includes('bearer')) {
    found.key = bytes.toString('latin1', head.bearer, head.bearerEnd);
  }
  if (head.apiKey > 0 && authz.sources.includes('x-api-key')) {
    const key = bytes.toString('latin1', head.apiKey, head.apiKeyEnd);
    if (found.key !== '' && found.key !== key) return false;
    found.key = key;
  }
  if (found.key === '') return false;
  found.apiId = known.apiId;
  found.fromGateway = true;
  found.length = end - at;
  return true;
}

/** The last target that was one of ours: a gateway sends the same again and again. */
const known: { target: Buffer; apiId: string | undefined } = { target: Buffer.from(' '), apiId: undefined };

/** Whether the target is one of ours; then `known` has it. */
function isOurs(bytes: Buffer, from: number, to: number): boolean {
  if (to - from === known.target.length && follows(bytes, from, known.target)) return true;
  const path = authzPath(bytes.toString('latin1', from, to));
  if (path === undefined) return false;
  known.target = Buffer.from(bytes.subarray(from, to));
  known.apiId = path.apiId;
  return true;
}

/** What the last head said, beside `found.requestId`. */
const head = {
  /** The headers that were there, as bits. */
  seen: 0,
  /** `Content-Length`; 0 = none that counts. */
  length: 0,
  /** Where the value of `Authorization: Bearer` begins and ends, and that of `X-Api-Key`; 0 = not there. */
  bearer: 0,
  bearerEnd: 0,
  apiKey: 0,
  apiKeyEnd: 0,
};

/** Reads the header lines of the request at `at`, behind its first line; where the body begins, or -1. */
function scanHead(
  bytes: Buffer,
  at: number,
  lineLength: number,
  headers: Headers,
  found: Recognised,
): number {
  let i = at + lineLength;
  head.seen = 0;
  head.length = 0;
  head.bearer = 0;
  head.apiKey = 0;
  found.requestId = '';
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
        found.requestId = bytes.toString('latin1', value, i);
        if (requestIdFrom(found.requestId) !== found.requestId) return -1;
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

const VERIFY_KEY = Buffer.from('POST /v1/keys.verifyKey HTTP/1.1\r\n');
const GET_AUTHZ = Buffer.from('GET /authz/');
const METHOD_LENGTH = 'GET '.length;
const VERSION = Buffer.from(' HTTP/1.1\r\n');
const JSON_TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'application/json;charset=utf-8',
].map((type) => Buffer.from(type));
const KEEP_ALIVE = [Buffer.from('keep-alive')];
const BEARER = Buffer.from('bearer ');
const [LF, CR, SPACE, QUOTE, COMMA, COLON, CLOSE, ZERO] = [10, 13, 32, 34, 44, 58, 125, 48] as const;

/** Headers that change how a request is read or answered, each a bit so that a second one is noticed. */
const [ANY, HOST, CONTENT_LENGTH, CONTENT_TYPE, CONNECTION, REQUEST_ID, AUTHORIZATION, API_KEY, FOR_NODE] = [
  0, 1, 2, 4, 8, 16, 32, 64, 128,
] as const;
const NEEDED = HOST | CONTENT_LENGTH | CONTENT_TYPE;

const LONGEST_NAME = 'access-control-request-method'.length;

/** Names in lower case, by their length. */
type Headers = readonly (readonly { readonly name: Buffer; readonly header: number }[] | undefined)[];

function headersOf(own: Readonly<Record<string, number>>): Headers {
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

const VERIFY_KEY_HEADERS = headersOf({ 'content-length': CONTENT_LENGTH, 'content-type': CONTENT_TYPE });
const AUTHZ_HEADERS = headersOf({
  authorization: AUTHORIZATION,
  'x-api-key': API_KEY,
  'content-length': FOR_NODE,
  // A CORS preflight, which may be allowed without a key.
  'access-control-request-method': FOR_NODE,
});

const NAME = bytesOf(/[A-Za-z0-9_-]/);
const VISIBLE = bytesOf(/[ -~]/);
/** What a request target is made of; a fragment is not for servers. */
const TARGET = bytesOf(/[!"$-~]/);
/** What stands for itself in a JSON string. */
const PLAIN = bytesOf(/[ !#-[\]-~]/);

function bytesOf(pattern: RegExp): Uint8Array {
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

function follows(bytes: Buffer, at: number, expected: Buffer): boolean {
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

const FIELD_KEY = Buffer.from('"key":');
const FIELD_API_ID = Buffer.from('"apiId":');
const OPEN = Buffer.from('{');

/** A body as `JSON.stringify` makes it, or with single spaces as others do: no escapes, nothing but ASCII. */
function scanBody(bytes: Buffer, at: number, end: number, found: Recognised): boolean {
  if (!follows(bytes, at, OPEN)) return false;
  found.key = '';
  found.apiId = undefined;
  for (let i = at + 1; ; i++) {
    const isKey = follows(bytes, i, FIELD_KEY);
    if (!isKey && !follows(bytes, i, FIELD_API_ID)) return false;
    i += isKey ? FIELD_KEY.length : FIELD_API_ID.length;
    if (bytes[i] === SPACE) i++;
    if (bytes[i++] !== QUOTE) return false;
    const value = i;
    while (PLAIN[bytes[i] as number] === 1) i++;
    if (bytes[i] !== QUOTE) return false;
    // A field that comes twice, a key of the wrong length and an apiId that breaks its rule are for the validator.
    if (isKey) {
      if (found.key !== '' || i === value || i - value > KEY_LENGTH_MAX) return false;
      found.key = bytes.toString('latin1', value, i);
    } else {
      const apiId = bytes.toString('latin1', value, i);
      if (found.apiId !== undefined || !API_ID.test(apiId)) return false;
      found.apiId = apiId;
    }
    i++;
    if (bytes[i] === CLOSE) return i + 1 === end && found.key !== '';
    if (bytes[i] !== COMMA) return false;
    if (bytes[i + 1] === SPACE) i++;
  }
}

/** Any other body that the reference accepts, read as the reference reads it. */
function parseBody(body: Buffer, found: Recognised): boolean {
  try {
    const { key, apiId } = questionOf(parseJson(body));
    found.key = key;
    found.apiId = apiId;
    return true;
  } catch {
    return false;
  }
}
