import { requestIdFrom } from '#shared/request-id.ts';
import { parseJson } from './body.ts';
import { API_ID, KEY_LENGTH_MAX, questionOf } from './verify-key.ts';

/** What was recognised; one object is filled again and again. */
export interface Recognised {
  key: string;
  apiId: string | undefined;
  /** The client's own, well-formed; `''` = none was sent. */
  requestId: string;
  /** Bytes of the whole request. */
  length: number;
}

/** A longer head is not the common request; well below what Node accepts. */
const HEAD_BYTES_MAX = 4096;

/**
 * Recognises the common verifyKey request, whole, at `at`: exactly the shape that ordinary clients send, where
 * Node's parser has no second opinion. Everything else is not wrong but false: it is for Node to judge.
 * Works on the bytes, which V8 reads three times as fast as the characters of a string, and allocates nothing
 * but the texts it returns.
 * @param bodyBytesMax largest body, bytes
 */
export function recognise(bytes: Buffer, at: number, bodyBytesMax: number, found: Recognised): boolean {
  if (!follows(bytes, at, REQUEST_LINE)) return false;
  let i = at + REQUEST_LINE.length;
  let seen = 0;
  let length = 0;
  found.requestId = '';
  while (bytes[i] !== CR) {
    const name = i;
    while (NAME[bytes[i] as number] === 1) i++;
    const nameLength = i - name;
    if (nameLength === 0 || bytes[i++] !== COLON) return false;
    if (bytes[i] === SPACE) i++;
    const value = i;
    while (VISIBLE[bytes[i] as number] === 1) i++;
    if (i === value || bytes[i] !== CR || bytes[i + 1] !== LF) return false;
    const header = headerOf(bytes, name, nameLength);
    if ((seen & header) !== 0) return false;
    seen |= header;
    switch (header) {
      case FOR_NODE:
        return false;
      case CONTENT_LENGTH:
        length = decimal(bytes, value, i);
        break;
      case CONTENT_TYPE:
        if (!JSON_TYPES.has(bytes.toString('latin1', value, i).toLowerCase())) return false;
        break;
      case CONNECTION:
        if (i - value !== KEEP_ALIVE.length || !named(bytes, value, KEEP_ALIVE)) return false;
        break;
      case REQUEST_ID:
        found.requestId = bytes.toString('latin1', value, i);
        if (requestIdFrom(found.requestId) !== found.requestId) return false;
    }
    i += 2;
  }
  const body = i + 2;
  const end = body + length;
  found.length = end - at;
  if (bytes[i + 1] !== LF || (seen & NEEDED) !== NEEDED || body - at > HEAD_BYTES_MAX) return false;
  if (length === 0 || length > bodyBytesMax || end > bytes.length) return false;
  return scanBody(bytes, body, end, found) || parseBody(bytes.subarray(body, end), found);
}

const REQUEST_LINE = Buffer.from('POST /v1/keys.verifyKey HTTP/1.1\r\n');
const JSON_TYPES: ReadonlySet<string> = new Set([
  'application/json',
  'application/json; charset=utf-8',
  'application/json;charset=utf-8',
]);
const [LF, CR, SPACE, QUOTE, COMMA, COLON, CLOSE, ZERO] = [10, 13, 32, 34, 44, 58, 125, 48] as const;

/** Headers that change how a request is read or answered, each a bit so that a second one is noticed. */
const [ANY, HOST, CONTENT_LENGTH, CONTENT_TYPE, CONNECTION, REQUEST_ID, FOR_NODE] = [
  0, 1, 2, 4, 8, 16, 32,
] as const;
const NEEDED = HOST | CONTENT_LENGTH | CONTENT_TYPE;
const HEADERS = new Map<number, [Buffer, number][]>();
for (const [name, header] of Object.entries({
  host: HOST,
  'content-length': CONTENT_LENGTH,
  'content-type': CONTENT_TYPE,
  connection: CONNECTION,
  'x-request-id': REQUEST_ID,
  expect: FOR_NODE,
  upgrade: FOR_NODE,
  'proxy-connection': FOR_NODE,
  'transfer-encoding': FOR_NODE,
})) {
  HEADERS.set(name.length, [...(HEADERS.get(name.length) ?? []), [Buffer.from(name), header]]);
}
const KEEP_ALIVE = Buffer.from('keep-alive');

const NAME = bytesOf(/[A-Za-z0-9_-]/);
const VISIBLE = bytesOf(/[ -~]/);
/** What stands for itself in a JSON string. */
const PLAIN = bytesOf(/[ !#-[\]-~]/);

function bytesOf(pattern: RegExp): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, byte) =>
    byte < 128 && pattern.test(String.fromCharCode(byte)) ? 1 : 0,
  );
}

function headerOf(bytes: Buffer, at: number, length: number): number {
  for (const [name, header] of HEADERS.get(length) ?? []) if (named(bytes, at, name)) return header;
  return ANY;
}

function follows(bytes: Buffer, at: number, expected: Buffer): boolean {
  for (let i = 0; i < expected.length; i++) if (bytes[at + i] !== expected[i]) return false;
  return true;
}

/** Whether `name`, of lower-case letters and `-`, is there in any case. */
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
