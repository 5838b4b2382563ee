import { LRUCache } from 'lru-cache';
import { API_ID } from '#shared/contract/api-id.ts';
import { KEY_LENGTH_MAX, type Question } from '../core/question/question.ts';
import { DEFAULT_REQUIREMENTS, type Requirements } from '../core/question/requirements.ts';
import type { Callers } from '../core/root-keys/callers.ts';
import type { AuthzSettings } from '../endpoints/authz.ts';
import { AUTHZ_PREFIX } from '../endpoints/dialects.ts';
import { V1, V2 } from '../endpoints/verify-key.ts';
import { parseJson } from '../http/json-body.ts';
import { GatewayTargets } from './gateway-target.ts';
import type { LaneRequest } from './lane-request.ts';
import { jsonReplies, jsonRepliesV2, type Replies } from './reply.ts';
import {
  API_KEY,
  AUTHORIZATION,
  bytesOf,
  CONTENT_LENGTH,
  CONTENT_TYPE,
  endsIn,
  FOR_NODE,
  follows,
  type Head,
  type Headers,
  HOST,
  headersOf,
  PARTIAL,
  SPACE,
  scanHead,
  TARGET,
} from './scan-head.ts';

/** `partial`: the beginning of a common request. */
type Completeness = 'whole' | 'partial' | 'for Node';

/**
 * A reader of the questions in a lane. It recognizes only the exact form that ordinary clients of verifyKey
 * and gateways send, which Node's parser cannot read differently. All other requests go to Node, whether they
 * are wrong or not. Allocates little more than the texts that it reads.
 */
export class QuestionReader {
  readonly #bodyBytesMax: number;
  readonly #authz: AuthzSettings | undefined;
  readonly #callers: Callers | undefined;
  readonly #headers: Headers;
  readonly #targets: GatewayTargets;
  readonly #generations = [
    generationOf('v1', V1.questionOf, jsonReplies),
    generationOf('v2', V2.questionOf, jsonRepliesV2),
  ] as const;

  /**
   * @param bodyBytesMax maximum length of the body, in bytes
   * @param authz undefined = gateways get no answer
   * @param callers undefined = anybody may ask about keys
   */
  constructor(bodyBytesMax: number, authz: AuthzSettings | undefined, callers: Callers | undefined) {
    this.#bodyBytesMax = bodyBytesMax;
    this.#authz = authz;
    this.#callers = callers;
    this.#headers = callers ? VERIFY_KEY_HEADERS_WITH_ROOT_KEY : VERIFY_KEY_HEADERS;
    this.#targets = new GatewayTargets(authz?.withMeta ?? false);
  }

  /** Reads the request at `at`. */
  read(bytes: Buffer, at: number, request: LaneRequest): Completeness {
    request.length = 0;
    const [first, second] = this.#generations;
    const generation = follows(bytes, at, first.line) ? first : second;
    if (generation === second && !follows(bytes, at, second.line)) {
      if (endsIn(bytes, at, first.line) || endsIn(bytes, at, second.line)) return 'partial';
      return this.#authz === undefined ? 'for Node' : this.#readAuthz(bytes, at, this.#authz, request);
    }
    const { head } = request;
    const version = at + first.line.length;
    if (!isVersion(bytes, version)) return isPartOfVersion(bytes, version) ? 'partial' : 'for Node';
    const body = scanHead(bytes, at, first.line.length + VERSION_LENGTH, this.#headers, head);
    if (body < 0) return body === PARTIAL ? 'partial' : 'for Node';
    if ((head.headerBits & REQUIRED_HEADERS) !== REQUIRED_HEADERS) return 'for Node';
    const end = body + head.length;
    if (head.length === 0 || head.length > this.#bodyBytesMax) return 'for Node';
    request.replies = generation.replies;
    request.isLast = isLast(bytes, version, head);
    request.length = end - at;
    if (end > bytes.length) return 'partial';
    if (this.#callers !== undefined && !admit(this.#callers, bytes, request)) return 'for Node';
    return scanBody(bytes, body, end, generation, request) ||
      parseBody(bytes.subarray(body, end), generation, request)
      ? 'whole'
      : 'for Node';
  }

  /** Reads a GET below `/authz/` without a body and with one key, or the same key twice. */
  #readAuthz(bytes: Buffer, at: number, authz: AuthzSettings, request: LaneRequest): Completeness {
    // If the key may be in the query, the client's target in the gateway's headers matters too.
    if (authz.sources.includes('query')) return 'for Node';
    if (!follows(bytes, at, GET_AUTHZ)) return endsIn(bytes, at, GET_AUTHZ) ? 'partial' : 'for Node';
    const from = at + METHOD_LENGTH;
    let i = from;
    while (TARGET[bytes[i] as number] === 1) i++;
    const version = i + VERSION_START.length;
    if (!follows(bytes, i, VERSION_START)) {
      return endsIn(bytes, i, VERSION_START) && i - at < TARGET_LENGTH_MAX ? 'partial' : 'for Node';
    }
    const target = this.#targets.at(bytes, from, i);
    if (target === undefined) return 'for Node';
    if (!isVersion(bytes, version)) return isPartOfVersion(bytes, version) ? 'partial' : 'for Node';
    const { head } = request;
    const end = scanHead(bytes, at, version + VERSION_LENGTH - at, AUTHZ_HEADERS, head);
    if (end < 0) return end === PARTIAL ? 'partial' : 'for Node';
    if ((head.headerBits & HOST) === 0 || head.length !== 0) return 'for Node';
    let key = '';
    if (head.bearer > 0 && authz.sources.includes('bearer')) {
      key = bytes.toString('latin1', head.bearer, head.bearerEnd);
    }
    if (head.apiKey > 0 && authz.sources.includes('x-api-key')) {
      const second = bytes.toString('latin1', head.apiKey, head.apiKeyEnd);
      if (key !== '' && key !== second) return 'for Node';
      key = second;
    }
    if (key === '') return 'for Node';
    request.key = key;
    request.apiId = target.apiId;
    request.requirements = target.requirements;
    request.allowedApis = undefined;
    request.replies = target.replies;
    request.isLast = isLast(bytes, version, head);
    request.length = end - at;
    return 'whole';
  }
}

const VERSIONS = [Buffer.from('1\r\n'), Buffer.from('0\r\n')] as const;
const VERSION_LENGTH = VERSIONS[0].length;
const VERSION_START = Buffer.from(' HTTP/1.');

/** Returns true if HTTP/1.1 or HTTP/1.0 ends the request line; `at` is the place after the point. */
const isVersion = (bytes: Buffer, at: number) =>
  follows(bytes, at, VERSIONS[0]) || follows(bytes, at, VERSIONS[1]);
const isPartOfVersion = (bytes: Buffer, at: number) =>
  endsIn(bytes, at, VERSIONS[0]) || endsIn(bytes, at, VERSIONS[1]);
/** Returns true if the connection closes after this request. HTTP/1.0 keeps it open only on request. */
const isLast = (bytes: Buffer, version: number, head: Head) =>
  bytes[version] === VERSIONS[0][0] ? head.closes : !head.keepsAlive;

/** A generation of verifyKey, for reading. */
interface Generation {
  /** Beginning of a request. */
  readonly line: Buffer;
  /** True if a body may name the API to which the key must belong. */
  readonly takesApi: boolean;
  readonly questionOf: (body: Record<string, unknown>) => Question;
  readonly replies: Replies;
  /**
   * Caches the requirements by the text of the body after the key, because an API asks the same few questions
   * about all its keys.
   */
  readonly ends: LRUCache<string, Requirements>;
}

const generationOf = (
  name: 'v1' | 'v2',
  questionOf: Generation['questionOf'],
  replies: Replies,
): Generation => ({
  line: Buffer.from(`POST /${name}/keys.verifyKey HTTP/1.`),
  takesApi: name === 'v1',
  ...{ questionOf, replies },
  ends: new LRUCache({ max: 1000 }),
});

const GET_AUTHZ = Buffer.from(`GET ${AUTHZ_PREFIX}`);
const METHOD_LENGTH = 'GET '.length;
/** If a target is longer, the lane does not wait for its end. */
const TARGET_LENGTH_MAX = 2048;
const [QUOTE, COMMA, CLOSE] = [34, 44, 125] as const;
const REQUIRED_HEADERS = HOST | CONTENT_LENGTH | CONTENT_TYPE;

const VERIFY_KEY_HEADERS = headersOf({ 'content-length': CONTENT_LENGTH, 'content-type': CONTENT_TYPE });
const VERIFY_KEY_HEADERS_WITH_ROOT_KEY = headersOf({
  'content-length': CONTENT_LENGTH,
  'content-type': CONTENT_TYPE,
  authorization: AUTHORIZATION,
});
const AUTHZ_HEADERS = headersOf({
  authorization: AUTHORIZATION,
  'x-api-key': API_KEY,
  'content-length': CONTENT_LENGTH,
  // Marks a CORS preflight, which may be allowed without a key.
  'access-control-request-method': FOR_NODE,
});

/** Characters that need no escape in a JSON string. */
const PLAIN = bytesOf(/[ !#-[\]-~]/);

const FIELD_KEY = Buffer.from('"key":');
const FIELD_API_ID = Buffer.from('"apiId":');
const OPEN = Buffer.from('{');

/** Longest end of a body that is cached. */
const END_LENGTH_MAX = 1024;

/** Notes what the caller may ask. Returns false if the reference must find out, or refuse the caller. */
function admit(callers: Callers, bytes: Buffer, request: LaneRequest): boolean {
  const { bearer, bearerEnd } = request.head;
  const scope = bearer === 0 ? undefined : callers.scopeOf(bytes.toString('latin1', bearer, bearerEnd));
  request.allowedApis = scope?.allowedApis;
  return scope?.keys === true;
}

/** A placeholder key: the rest of a body means the same after any key. */
const OTHER_KEY = 'x';
const BEFORE_END = Buffer.from(`{"key":"${OTHER_KEY}",`);

/** Parses any other body that the reference accepts, as the reference does. */
function parseBody(body: Buffer, { questionOf }: Generation, request: LaneRequest): boolean {
  try {
    const { key, apiId, tags, requirements } = questionOf(parseJson(body));
    if (tags !== undefined) return false;
    request.key = key;
    request.apiId = apiId;
    request.requirements = requirements;
    return true;
  } catch {
    return false;
  }
}

/**
 * Scans a body in the form of `JSON.stringify`, or with single spaces between its parts: without escapes,
 * ASCII only.
 */
function scanBody(
  bytes: Buffer,
  at: number,
  end: number,
  generation: Generation,
  request: LaneRequest,
): boolean {
  if (!follows(bytes, at, OPEN)) return false;
  request.key = '';
  request.apiId = undefined;
  request.requirements = DEFAULT_REQUIREMENTS;
  for (let i = at + 1; ; i++) {
    const isKey = follows(bytes, i, FIELD_KEY);
    if (!isKey && !(generation.takesApi && follows(bytes, i, FIELD_API_ID))) {
      const requirements =
        request.key === '' || bytes[i] !== QUOTE ? undefined : requirementsAt(bytes, i, end, generation);
      if (requirements !== undefined) request.requirements = requirements;
      return requirements !== undefined;
    }
    i += isKey ? FIELD_KEY.length : FIELD_API_ID.length;
    if (bytes[i] === SPACE) i++;
    if (bytes[i++] !== QUOTE) return false;
    const value = i;
    while (PLAIN[bytes[i] as number] === 1) i++;
    if (bytes[i] !== QUOTE) return false;
    // The reference handles a repeated field, a key of the wrong length, and an invalid apiId.
    if (isKey) {
      if (request.key !== '' || i === value || i - value > KEY_LENGTH_MAX) return false;
      request.key = bytes.toString('latin1', value, i);
    } else {
      const apiId = bytes.toString('latin1', value, i);
      if (request.apiId !== undefined || !API_ID.test(apiId)) return false;
      request.apiId = apiId;
    }
    i++;
    if (bytes[i] === CLOSE) return i + 1 === end && request.key !== '';
    if (bytes[i] !== COMMA) return false;
    if (bytes[i + 1] === SPACE) i++;
  }
}

/**
 * Returns the requirements in the rest of a body, as the reference reads them; undefined if the rest contains
 * anything else.
 */
function requirementsAt(
  bytes: Buffer,
  at: number,
  end: number,
  { ends, questionOf }: Generation,
): Requirements | undefined {
  if (end - at > END_LENGTH_MAX) return undefined;
  const text = bytes.toString('latin1', at, end);
  const present = ends.get(text);
  if (present) return present;
  try {
    const body = Buffer.concat([BEFORE_END, bytes.subarray(at, end)]);
    const { key, apiId, tags, requirements } = questionOf(parseJson(body));
    if (key !== OTHER_KEY || apiId !== undefined || tags !== undefined) return undefined;
    ends.set(text, requirements);
    return requirements;
  } catch {
    return undefined;
  }
}
