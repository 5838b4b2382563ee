import type { Callers } from '../core/callers.ts';
import type { AuthzSettings } from '../http/authz.ts';
import { AUTHZ_PREFIX } from '../http/dialects.ts';
import { V1, V2 } from '../http/verify-key.ts';
import { GatewayTargets } from './gateway-target.ts';
import {
  API_KEY,
  AUTHORIZATION,
  CLIENT_IP,
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
  scanHead,
  TARGET,
} from './head.ts';
import type { LaneRequest } from './lane-request.ts';
import { jsonReplies, jsonRepliesV2 } from './reply.ts';
import { generationOf, parseBody, scanBody } from './scan-body.ts';

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
  readonly #authzHeaders: Headers;
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
    this.#authzHeaders = authzHeaders(authz?.clientIps?.header);
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
    const end = scanHead(bytes, at, version + VERSION_LENGTH - at, this.#authzHeaders, head);
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
    request.clientIp =
      head.clientIp === 0
        ? undefined
        : authz.clientIps?.inHeader(bytes.toString('latin1', head.clientIp, head.clientIpEnd));
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

const GET_AUTHZ = Buffer.from(`GET ${AUTHZ_PREFIX}`);
const METHOD_LENGTH = 'GET '.length;
/** If a target is longer, the lane does not wait for its end. */
const TARGET_LENGTH_MAX = 2048;
const REQUIRED_HEADERS = HOST | CONTENT_LENGTH | CONTENT_TYPE;

const VERIFY_KEY_HEADERS = headersOf({ 'content-length': CONTENT_LENGTH, 'content-type': CONTENT_TYPE });
const VERIFY_KEY_HEADERS_WITH_ROOT_KEY = headersOf({
  'content-length': CONTENT_LENGTH,
  'content-type': CONTENT_TYPE,
  authorization: AUTHORIZATION,
});
/** @param clientIp name of the header with the client's address; undefined or `''` = none */
const authzHeaders = (clientIp = '') =>
  headersOf({
    ...(clientIp === '' ? {} : { [clientIp]: CLIENT_IP }),
    authorization: AUTHORIZATION,
    'x-api-key': API_KEY,
    'content-length': CONTENT_LENGTH,
    // Marks a CORS preflight, which may be allowed without a key.
    'access-control-request-method': FOR_NODE,
  });

/** Notes what the caller may ask. Returns false if the reference must find out, or refuse the caller. */
function admit(callers: Callers, bytes: Buffer, request: LaneRequest): boolean {
  const { bearer, bearerEnd } = request.head;
  const scope = bearer === 0 ? undefined : callers.scopeOf(bytes.toString('latin1', bearer, bearerEnd));
  request.allowedApis = scope?.allowedApis;
  return scope?.keys === true;
}
