import { LRUCache } from 'lru-cache';
import { API_ID } from '#shared/api-id.ts';
import { KEY_LENGTH_MAX, type Question } from '../core/question.ts';
import { DEFAULT_REQUIREMENTS, type Requirements } from '../core/requirements.ts';
import type { AuthzSettings } from '../endpoints/authz.ts';
import { AUTHZ_PREFIX, type AuthzPath, parseAuthzPath } from '../endpoints/dialects.ts';
import { questionOf } from '../endpoints/verify-key.ts';
import { parseJson } from '../http/json-body.ts';
import {
  API_KEY,
  AUTHORIZATION,
  BEGUN,
  bytesOf,
  CONTENT_LENGTH,
  CONTENT_TYPE,
  endsIn,
  FOR_NODE,
  follows,
  HOST,
  head,
  headersOf,
  SPACE,
  scanHead,
  TARGET,
} from './scan-head.ts';

/** The question that was read; one object is filled again and again. */
export interface ParsedQuestion extends Question {
  key: string;
  apiId: string | undefined;
  requirements: Requirements;
  /** The client's own, well-formed; `''` = none was sent. */
  requestId: string;
  /** True if a gateway asks, and is answered as one. */
  fromGateway: boolean;
  /** True if that gateway can be answered 429. */
  knows429: boolean;
  /** True if the connection is closed after the answer. */
  isLast: boolean;
  /** Bytes of the whole request; 0 = so much is not known yet. */
  length: number;
}

/** `begun`: such a request, as far as it is here. */
type ParseResult = 'whole' | 'begun' | 'for Node';

/**
 * Recognises a common request at `at`: exactly the shape that ordinary clients of verifyKey and gateways send, where
 * Node's parser has no second opinion. Everything else is not wrong but for Node to judge. Allocates little but the texts
 * it returns.
 * @param bodyBytesMax largest body, bytes
 * @param authz undefined = gateways are not answered
 */
export function parseQuestion(
  bytes: Buffer,
  at: number,
  bodyBytesMax: number,
  authz: AuthzSettings | undefined,
  parsed: ParsedQuestion,
): ParseResult {
  parsed.fromGateway = false;
  parsed.length = 0;
  if (!follows(bytes, at, VERIFY_KEY)) {
    if (endsIn(bytes, at, VERIFY_KEY)) return 'begun';
    return authz === undefined ? 'for Node' : parseAuthz(bytes, at, authz, parsed);
  }
  const version = at + VERIFY_KEY.length;
  if (!isVersion(bytes, version)) return isBegunVersion(bytes, version) ? 'begun' : 'for Node';
  const body = scanHead(bytes, at, VERIFY_KEY.length + VERSION_LENGTH, VERIFY_KEY_HEADERS);
  if (body < 0) return body === BEGUN ? 'begun' : 'for Node';
  if ((head.seen & NEEDED) !== NEEDED) return 'for Node';
  const end = body + head.length;
  if (head.length === 0 || head.length > bodyBytesMax) return 'for Node';
  parsed.requestId = head.requestId;
  parsed.isLast = isLast(bytes, version);
  parsed.length = end - at;
  if (end > bytes.length) return 'begun';
  return scanBody(bytes, body, end, parsed) || parseBody(bytes.subarray(body, end), parsed)
    ? 'whole'
    : 'for Node';
}

/** A GET below `/authz/` without a body and with one key, the same where it comes twice. */
function parseAuthz(bytes: Buffer, at: number, authz: AuthzSettings, parsed: ParsedQuestion): ParseResult {
  // Where the key may be in the query, what the gateway says of the client's target counts too.
  if (authz.sources.includes('query')) return 'for Node';
  if (!follows(bytes, at, GET_AUTHZ)) return endsIn(bytes, at, GET_AUTHZ) ? 'begun' : 'for Node';
  const target = at + METHOD_LENGTH;
  let i = target;
  while (TARGET[bytes[i] as number] === 1) i++;
  const version = i + VERSION_START.length;
  if (!follows(bytes, i, VERSION_START)) {
    return endsIn(bytes, i, VERSION_START) && i - at < TARGET_LENGTH_MAX ? 'begun' : 'for Node';
  }
  if (!isOurs(bytes, target, i)) return 'for Node';
  if (!isVersion(bytes, version)) return isBegunVersion(bytes, version) ? 'begun' : 'for Node';
  const end = scanHead(bytes, at, version + VERSION_LENGTH - at, AUTHZ_HEADERS);
  if (end < 0) return end === BEGUN ? 'begun' : 'for Node';
  if ((head.seen & HOST) === 0 || head.length !== 0) return 'for Node';
  parsed.requestId = head.requestId;
  parsed.isLast = isLast(bytes, version);
  parsed.key = '';
  if (head.bearer > 0 && authz.sources.includes('bearer')) {
    parsed.key = bytes.toString('latin1', head.bearer, head.bearerEnd);
  }
  if (head.apiKey > 0 && authz.sources.includes('x-api-key')) {
    const key = bytes.toString('latin1', head.apiKey, head.apiKeyEnd);
    if (parsed.key !== '' && parsed.key !== key) return 'for Node';
    parsed.key = key;
  }
  if (parsed.key === '') return 'for Node';
  parsed.apiId = known.apiId;
  parsed.requirements = known.requirements;
  parsed.fromGateway = true;
  parsed.knows429 = known.knows429;
  parsed.length = end - at;
  return 'whole';
}

const VERSIONS = [Buffer.from('1\r\n'), Buffer.from('0\r\n')] as const;
const VERSION_LENGTH = VERSIONS[0].length;
const VERSION_START = Buffer.from(' HTTP/1.');

/** Tells whether HTTP/1.1 or HTTP/1.0 ends the request line; `at` is behind the point. */
const isVersion = (bytes: Buffer, at: number) =>
  follows(bytes, at, VERSIONS[0]) || follows(bytes, at, VERSIONS[1]);
const isBegunVersion = (bytes: Buffer, at: number) =>
  endsIn(bytes, at, VERSIONS[0]) || endsIn(bytes, at, VERSIONS[1]);
/** Tells whether the head just read is the last of its connection: HTTP/1.0 keeps it open only where asked to. */
const isLast = (bytes: Buffer, version: number) =>
  bytes[version] === VERSIONS[0][0] ? head.closes : !head.keepsAlive;

/** The last target that was one of ours: a gateway sends the same again and again. */
const known: { target: Buffer; apiId: string | undefined; requirements: Requirements; knows429: boolean } = {
  target: Buffer.from(' '),
  apiId: undefined,
  requirements: DEFAULT_REQUIREMENTS,
  knows429: true,
};

/** Tells whether the target is one of ours; then `known` has it. */
function isOurs(bytes: Buffer, from: number, to: number): boolean {
  if (to - from === known.target.length && follows(bytes, from, known.target)) return true;
  const path = pathOf(bytes.toString('latin1', from, to));
  if (path === undefined) return false;
  known.target = Buffer.from(bytes.subarray(from, to));
  known.apiId = path.apiId;
  known.requirements = path.requirements;
  known.knows429 = path.dialect.knows429;
  return true;
}

/** The path, where it asks for what there can be; the rest is for the reference to refuse. */
function pathOf(target: string): AuthzPath | undefined {
  try {
    return parseAuthzPath(target);
  } catch {
    return undefined;
  }
}

const VERIFY_KEY = Buffer.from('POST /v1/keys.verifyKey HTTP/1.');
const GET_AUTHZ = Buffer.from(`GET ${AUTHZ_PREFIX}`);
const METHOD_LENGTH = 'GET '.length;
/** One whose end is further is not waited for. */
const TARGET_LENGTH_MAX = 2048;
const [QUOTE, COMMA, CLOSE] = [34, 44, 125] as const;
const NEEDED = HOST | CONTENT_LENGTH | CONTENT_TYPE;

const VERIFY_KEY_HEADERS = headersOf({ 'content-length': CONTENT_LENGTH, 'content-type': CONTENT_TYPE });
const AUTHZ_HEADERS = headersOf({
  authorization: AUTHORIZATION,
  'x-api-key': API_KEY,
  'content-length': CONTENT_LENGTH,
  // A CORS preflight, which may be allowed without a key.
  'access-control-request-method': FOR_NODE,
});

/** Characters that stand for themselves in a JSON string. */
const PLAIN = bytesOf(/[ !#-[\]-~]/);

const FIELD_KEY = Buffer.from('"key":');
const FIELD_API_ID = Buffer.from('"apiId":');
const OPEN = Buffer.from('{');

/** A body as `JSON.stringify` makes it, or with single spaces as others do: no escapes, nothing but ASCII. */
function scanBody(bytes: Buffer, at: number, end: number, parsed: ParsedQuestion): boolean {
  if (!follows(bytes, at, OPEN)) return false;
  parsed.key = '';
  parsed.apiId = undefined;
  parsed.requirements = DEFAULT_REQUIREMENTS;
  for (let i = at + 1; ; i++) {
    const isKey = follows(bytes, i, FIELD_KEY);
    if (!isKey && !follows(bytes, i, FIELD_API_ID)) {
      const requirements =
        parsed.key === '' || bytes[i] !== QUOTE ? undefined : requirementsAt(bytes, i, end);
      if (requirements !== undefined) parsed.requirements = requirements;
      return requirements !== undefined;
    }
    i += isKey ? FIELD_KEY.length : FIELD_API_ID.length;
    if (bytes[i] === SPACE) i++;
    if (bytes[i++] !== QUOTE) return false;
    const value = i;
    while (PLAIN[bytes[i] as number] === 1) i++;
    if (bytes[i] !== QUOTE) return false;
    // A field that comes twice, a key of the wrong length and an apiId that breaks its rule are for the validator.
    if (isKey) {
      if (parsed.key !== '' || i === value || i - value > KEY_LENGTH_MAX) return false;
      parsed.key = bytes.toString('latin1', value, i);
    } else {
      const apiId = bytes.toString('latin1', value, i);
      if (parsed.apiId !== undefined || !API_ID.test(apiId)) return false;
      parsed.apiId = apiId;
    }
    i++;
    if (bytes[i] === CLOSE) return i + 1 === end && parsed.key !== '';
    if (bytes[i] !== COMMA) return false;
    if (bytes[i + 1] === SPACE) i++;
  }
}

/** Ends of bodies, from the field behind the key on: an API asks the same few questions about all its keys. */
const knownEnds = new LRUCache<string, Requirements>({ max: 1000 });
/** One that is longer is not remembered. */
const END_LENGTH_MAX = 1024;

/** The requirements in the rest of a body, as the reference reads them there; undefined where it says anything else besides. */
function requirementsAt(bytes: Buffer, at: number, end: number): Requirements | undefined {
  if (end - at > END_LENGTH_MAX) return undefined;
  const text = bytes.toString('latin1', at, end);
  const present = knownEnds.get(text);
  if (present) return present;
  try {
    const body = Buffer.concat([BEFORE_END, bytes.subarray(at, end)]);
    const { key, apiId, tags, requirements } = questionOf(parseJson(body));
    if (key !== OTHER_KEY || apiId !== undefined || tags !== undefined) return undefined;
    knownEnds.set(text, requirements);
    return requirements;
  } catch {
    return undefined;
  }
}

/** Any key: the rest of a body means the same behind each. */
const OTHER_KEY = 'x';
const BEFORE_END = Buffer.from(`{"key":"${OTHER_KEY}",`);

/** Any other body that the reference accepts, read as the reference reads it. */
function parseBody(body: Buffer, parsed: ParsedQuestion): boolean {
  try {
    const { key, apiId, tags, requirements } = questionOf(parseJson(body));
    if (tags !== undefined) return false;
    parsed.key = key;
    parsed.apiId = apiId;
    parsed.requirements = requirements;
    return true;
  } catch {
    return false;
  }
}
