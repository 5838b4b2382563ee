import { isIP } from 'node:net';
import { LRUCache } from 'lru-cache';
import { ApiError } from '#shared/rules/errors.ts';
import { ORIGIN_LENGTH_MAX } from '#shared/rules/origins.ts';
import { isUnknown, type Presenter, presenterOf, UNKNOWN_PRESENTER } from '#shared/rules/presenter.ts';
import { newRequestId } from '#shared/rules/request-id.ts';
import { ANY_API, API_ID } from '#shared/rules/slugs.ts';
import type { Callers } from '../../core/callers.ts';
import type { HoldEnder, RefusalLog, Release } from '../../core/ports.ts';
import {
  DEFAULT_REQUIREMENTS,
  type HoldRequest,
  KEY_LENGTH_MAX,
  type Question,
  questionAbout,
} from '../../core/question.ts';
import type { Verdict, VerdictSource } from '../../core/verdict.ts';
import { AUTHZ_PREFIX, type AuthzPath, type AuthzSettings, DIALECTS, parseAuthzPath } from '../http/authz.ts';
import type { ClientIps } from '../http/credentials.ts';
import { parseJson } from '../http/json-body.ts';
import { releaseOf, V1, V2 } from '../http/verify-key.ts';
import {
  AUTHORIZATION,
  bytesOf,
  CLIENT_IP,
  CONTENT_LENGTH,
  CONTENT_TYPE,
  endsIn,
  FOR_NODE,
  follows,
  Head,
  type Headers,
  HOST,
  headersOf,
  type KeyPlaces,
  keyIn,
  keyPlacesOf,
  originInHead,
  PARTIAL,
  SPACE,
  scanHead,
  TARGET,
} from './head.ts';
import {
  addRelease,
  gatewayReplies,
  jsonReplies,
  jsonRepliesV2,
  type Output,
  type Replies,
} from './reply.ts';
import { routeIn } from './route.ts';

/** The current request of a connection, and who presents its key. Each connection has one such object and reuses it. */
export class LaneRequest implements Question, Presenter {
  readonly head = new Head();
  key = '';
  apiId: string | undefined = undefined;
  /** The facts in the body. */
  readonly inBody: { -readonly [Name in keyof Presenter]: Presenter[Name] } = { ...UNKNOWN_PRESENTER };
  /** The bytes of a request whose head has the facts, while it is decided; undefined = the body has them. */
  headBytes: Buffer | undefined = undefined;
  clientIps: ClientIps | undefined = undefined;
  readonly tags = undefined;
  requirements = DEFAULT_REQUIREMENTS;
  readonly isRecheck = false;
  allowedApis: ReadonlySet<string> | undefined = undefined;
  hold: HoldRequest | undefined = undefined;
  /** Answers in the form that the client expects. */
  replies: Replies = jsonReplies;
  /** True if the connection is closed after the answer. */
  isLast = false;
  /** Length of the whole request, in bytes; 0 = not known yet. */
  length = 0;
  /** The id in the answer; `''` = the client's, or a new one. */
  requestId = '';
  /** The verdict, set by `serveFromMemory` if it is in memory. */
  verdict: Verdict | undefined = undefined;
  /** The hold that the request ends; undefined = it is a question. */
  ended: ReturnType<typeof releaseOf> | undefined = undefined;
  /** The answer to the end of that hold, or the error; set by `serveFromMemory`. */
  release: Release | ApiError | undefined = undefined;

  /** Forgets the request before. The scan of a head resets `head`. */
  begin(): void {
    this.key = '';
    this.apiId = undefined;
    this.inBody.clientIp = undefined;
    this.inBody.origin = undefined;
    this.headBytes = undefined;
    this.requirements = DEFAULT_REQUIREMENTS;
    this.allowedApis = undefined;
    this.hold = undefined;
    this.isLast = false;
    this.length = 0;
    this.requestId = '';
    this.verdict = undefined;
    this.ended = undefined;
    this.release = undefined;
  }

  /** Takes over a question that was parsed. */
  take({ key, apiId, presenter, requirements, hold }: Question): void {
    this.key = key;
    this.apiId = apiId;
    Object.assign(this.inBody, presenterOf(presenter));
    this.requirements = requirements;
    this.hold = hold;
  }

  get presenter(): Presenter {
    return this;
  }

  /** Computed only if something needs it, as `origin`: most keys may be used from everywhere. */
  get clientIp(): string | undefined {
    const { headBytes, head } = this;
    if (headBytes === undefined) return this.inBody.clientIp;
    if (head.clientIp === 0) return undefined;
    return this.clientIps?.inHeader(headBytes.toString('latin1', head.clientIp, head.clientIpEnd));
  }

  get origin(): string | undefined {
    return this.headBytes === undefined ? this.inBody.origin : originInHead(this.headBytes, this.head);
  }

  /** Returns the question as a value that stays when the next request begins. */
  asQuestion(): Question {
    const { key, apiId, requirements, allowedApis, hold } = this;
    return questionAbout(key, { apiId, presenter: presenterOf(this), requirements, allowedApis, hold });
  }
}

/** The part of a lane that answers questions. */
interface Answering {
  readonly closing: boolean;
  readonly reader: QuestionReader;
  readonly options: {
    readonly verifier: VerdictSource;
    readonly forGateways?: VerdictSource | undefined;
    readonly holds?: HoldEnder | undefined;
    readonly refusals?: RefusalLog | undefined;
  };
}

/**
 * The result of reading a request. `decided`: it has its verdict; `undecided`: it needs a look-up; `partial`:
 * it has not completely arrived; `for Node`: it is not a common request.
 */
export type Outcome = 'decided' | 'undecided' | 'partial' | 'for Node';

/** Reads the request at `at` into `request`, and decides it if it is complete. */
export function serveFromMemory(
  { closing, reader, options }: Answering,
  bytes: Buffer,
  at: number,
  request: LaneRequest,
): Outcome {
  if (closing) return 'for Node';
  const completeness = reader.read(bytes, at, request);
  if (completeness !== 'whole') return completeness;
  if (request.ended !== undefined) return endHold(options.holds, request, request.ended);
  try {
    request.verdict = sourceOf(options, request).decide(request);
  } catch {
    // A bug in the lane: the reference meets the same error and reports it.
    return 'for Node';
  }
  const { verdict } = request;
  if (verdict === undefined) return 'undecided';
  if (verdict.code !== 'VALID' && options.refusals !== undefined)
    note(options.refusals, request, verdict, bytes, at);
  return 'decided';
}

/** Returns the source of the verdict on a request, which depends on who asks. */
const sourceOf = ({ verifier, forGateways = verifier }: Answering['options'], request: LaneRequest) =>
  request.headBytes === undefined ? verifier : forGateways;

/** Ends a hold, if that needs no answer from Redis. */
function endHold(
  holds: HoldEnder | undefined,
  request: LaneRequest,
  { hold, costs }: NonNullable<LaneRequest['ended']>,
): Outcome {
  if (holds === undefined) return 'for Node';
  try {
    const release = holds.release(hold, costs, request.allowedApis);
    if (release instanceof Promise) {
      // `replyByLookUp` asks again; until then, nobody waits for this one.
      release.catch(() => undefined);
      return 'undecided';
    }
    request.release = release;
  } catch (error) {
    if (!(error instanceof ApiError)) return 'for Node';
    request.release = error;
  }
  return 'decided';
}

/** Notes a refusal under the id that the answer will have. */
function note(refusals: RefusalLog, request: LaneRequest, verdict: Verdict, bytes: Buffer, at: number): void {
  if (verdict.code === 'NOT_FOUND') return;
  request.requestId = request.head.requestId || newRequestId();
  const { requestId } = request;
  refusals.note(verdict, request, { requestId, route: routeIn(bytes, at, request.length) });
}

/** Adds the reply to a decided request. */
export function reply(output: Output, request: LaneRequest, keepAliveS: number | undefined): void {
  const { replies, head, requestId, verdict, ended, release } = request;
  if (ended && release) {
    addRelease(output, release, head.requestId || newRequestId(), keepAliveS);
    return;
  }
  if (verdict === undefined) throw new Error('the request was not decided');
  replies.addVerdict(output, verdict, requestId || head.requestId || newRequestId(), keepAliveS, request);
}

/**
 * Adds the reply to a request after its look-up. Resolves with false after a bug in the lane; the reference
 * then meets the same error and reports it.
 */
export async function replyByLookUp(
  { options }: Answering,
  request: LaneRequest,
  output: Output,
  bytes: Buffer,
  connection: { readonly keepAliveS: number | undefined },
): Promise<boolean> {
  const { refusals } = options;
  const { replies, ended } = request;
  const route = refusals && routeIn(bytes, 0, bytes.length);
  const requestId = request.head.requestId || newRequestId();
  try {
    if (ended) {
      const release = await options.holds?.release(ended.hold, ended.costs, request.allowedApis);
      if (release === undefined) return false;
      addRelease(output, release, requestId, connection.keepAliveS);
      return true;
    }
    const question = request.asQuestion();
    const verdict = await sourceOf(options, request).lookUp(question);
    refusals?.note(verdict, question, { requestId, route });
    replies.addVerdict(output, verdict, requestId, connection.keepAliveS, question);
  } catch (error) {
    if (!(error instanceof ApiError)) return false;
    output.text += replies.refusal(error, requestId, connection.keepAliveS);
    output.isAscii = false;
  }
  return true;
}

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
  readonly #places: KeyPlaces | undefined;
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
    this.#places = authz && placesOf(authz);
    this.#targets = new GatewayTargets(authz);
  }

  /** Reads the request at `at`. */
  read(bytes: Buffer, at: number, request: LaneRequest): Completeness {
    request.begin();
    const [first, second] = this.#generations;
    const generation = follows(bytes, at, first.line) ? first : second;
    if (generation === second && !follows(bytes, at, second.line)) {
      if (follows(bytes, at, RELEASE)) return this.#read(bytes, at, RELEASE, undefined, request);
      if ([first.line, second.line, RELEASE].some((line) => endsIn(bytes, at, line))) return 'partial';
      return this.#authz === undefined ? 'for Node' : this.#readAuthz(bytes, at, this.#authz, request);
    }
    return this.#read(bytes, at, generation.line, generation, request);
  }

  /**
   * Reads a POST with a JSON body.
   * @param line its beginning
   * @param generation that of a question; undefined = the request ends a hold
   */
  #read(
    bytes: Buffer,
    at: number,
    line: Buffer,
    generation: Generation | undefined,
    request: LaneRequest,
  ): Completeness {
    const { head } = request;
    const version = at + line.length;
    if (!isVersion(bytes, version)) return isPartOfVersion(bytes, version) ? 'partial' : 'for Node';
    const body = scanHead(bytes, at, line.length + VERSION_LENGTH, this.#headers, head);
    if (body < 0) return body === PARTIAL ? 'partial' : 'for Node';
    if ((head.headerBits & REQUIRED_HEADERS) !== REQUIRED_HEADERS) return 'for Node';
    const end = body + head.length;
    if (head.length === 0 || head.length > this.#bodyBytesMax) return 'for Node';
    request.replies = generation?.replies ?? jsonReplies;
    request.isLast = isLast(bytes, version, head);
    request.length = end - at;
    if (end > bytes.length) return 'partial';
    if (this.#callers !== undefined && !admit(this.#callers, bytes, request)) return 'for Node';
    if (generation === undefined) return parseRelease(bytes.subarray(body, end), request);
    return scanBody(bytes, body, end, generation, request) ||
      parseBody(bytes.subarray(body, end), generation, request)
      ? 'whole'
      : 'for Node';
  }

  /** Reads a GET below `/authz/` without a body and with one key, or the same key twice. */
  #readAuthz(bytes: Buffer, at: number, authz: AuthzSettings, request: LaneRequest): Completeness {
    const places = this.#places;
    if (places === undefined) return 'for Node';
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
    const end = scanHead(bytes, at, version + VERSION_LENGTH - at, places.headers, head);
    if (end < 0) return end === PARTIAL ? 'partial' : 'for Node';
    if ((head.headerBits & HOST) === 0 || head.length !== 0) return 'for Node';
    const key = keyIn(bytes, head, places);
    if (key === undefined) return 'for Node';
    request.key = key;
    request.apiId = target.apiId;
    request.requirements = target.requirements;
    request.headBytes = bytes;
    request.clientIps = authz.clientIps;
    request.replies = target.replies;
    request.isLast = isLast(bytes, version, head);
    request.length = end - at;
    return 'whole';
  }
}

/** The beginning of a request that ends a hold. */
const RELEASE = Buffer.from('POST /v1/keys.release HTTP/1.');

/** Parses the body of a request that ends a hold, if the reference accepts it. */
function parseRelease(body: Buffer, request: LaneRequest): Completeness {
  try {
    request.ended = releaseOf(parseJson(body));
    return 'whole';
  } catch {
    return 'for Node';
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
const placesOf = ({ sources, clientIps }: AuthzSettings) =>
  keyPlacesOf(sources, {
    ...(clientIps?.header ? { [clientIps.header]: CLIENT_IP } : {}),
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

/** The target of a gateway's request. */
interface GatewayTarget extends Pick<AuthzPath, 'requirements'>, Pick<Question, 'apiId'> {
  readonly replies: Replies;
}

/**
 * The targets of gateways' requests. Remembers the last one, because a gateway sends the same target again
 * and again.
 */
class GatewayTargets {
  readonly #replies: ReadonlyMap<unknown, Replies>;
  #bytes: Buffer = Buffer.from(' ');
  #last: GatewayTarget | undefined;
  readonly #needsApi: boolean;

  /** @param authz undefined = gateways get no answer */
  constructor(authz: AuthzSettings | undefined) {
    this.#needsApi = authz?.needsApi ?? true;
    this.#replies = new Map(
      authz && DIALECTS.map((dialect) => [dialect, gatewayReplies(dialect.answers, authz)]),
    );
  }

  /** Returns the target between two places; undefined = not a valid target. */
  at(bytes: Buffer, from: number, to: number): GatewayTarget | undefined {
    if (to - from === this.#bytes.length && follows(bytes, from, this.#bytes)) return this.#last;
    const path = pathOf(bytes.toString('latin1', from, to));
    const replies = path && this.#replies.get(path.dialect);
    if (path === undefined || replies === undefined) return undefined;
    if (path.api === undefined && this.#needsApi) return undefined;
    this.#bytes = Buffer.from(bytes.subarray(from, to));
    this.#last = {
      apiId: path.api === ANY_API ? undefined : path.api,
      requirements: path.requirements,
      replies,
    };
    return this.#last;
  }
}

/** Returns the path of a valid target. The reference refuses the others. */
function pathOf(target: string): AuthzPath | undefined {
  try {
    return parseAuthzPath(target);
  } catch {
    return undefined;
  }
}

/** A generation of verifyKey, for reading. */
interface Generation {
  /** Beginning of a request. */
  readonly line: Buffer;
  /** True if a body may name the API to which the key must belong. */
  readonly takesApi: boolean;
  readonly questionOf: (body: Record<string, unknown>) => Question;
  readonly replies: Replies;
  /**
   * Caches what the body after the key asks for by its text, because an API asks the same few questions
   * about all its keys.
   */
  readonly ends: LRUCache<string, End>;
}

/** The rest of a question. */
type End = Pick<Question, 'requirements' | 'hold'>;

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

const [QUOTE, COMMA, CLOSE] = [34, 44, 125] as const;

/** Characters that need no escape in a JSON string. */
const PLAIN = bytesOf(/[ !#-[\]-~]/);

const FIELD_KEY = Buffer.from('"key":');
const FIELD_API_ID = Buffer.from('"apiId":');
const FIELD_CLIENT_IP = Buffer.from('"clientIp":');
const FIELD_ORIGIN = Buffer.from('"origin":');
const OPEN = Buffer.from('{');

/** Longest end of a body that is cached. */
const END_LENGTH_MAX = 1024;

/** A placeholder key: the rest of a body means the same after any key. */
const OTHER_KEY = 'x';
const BEFORE_END = Buffer.from(`{"key":"${OTHER_KEY}",`);

/** Parses any other body that the reference accepts, as the reference does. */
function parseBody(body: Buffer, { questionOf }: Generation, request: LaneRequest): boolean {
  try {
    const question = questionOf(parseJson(body));
    if (question.tags !== undefined || question.isRecheck) return false;
    request.take(question);
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
  for (let i = at + 1; ; i++) {
    const isKey = follows(bytes, i, FIELD_KEY);
    const isApi = !isKey && generation.takesApi && follows(bytes, i, FIELD_API_ID);
    const isClientIp = !isKey && !isApi && follows(bytes, i, FIELD_CLIENT_IP);
    if (!isKey && !isApi && !isClientIp && !follows(bytes, i, FIELD_ORIGIN)) {
      const rest = request.key === '' || bytes[i] !== QUOTE ? undefined : endAt(bytes, i, end, generation);
      if (rest === undefined) return false;
      request.requirements = rest.requirements;
      request.hold = rest.hold;
      return true;
    }
    i += (isKey ? FIELD_KEY : isApi ? FIELD_API_ID : isClientIp ? FIELD_CLIENT_IP : FIELD_ORIGIN).length;
    if (bytes[i] === SPACE) i++;
    if (bytes[i++] !== QUOTE) return false;
    const value = i;
    while (PLAIN[bytes[i] as number] === 1) i++;
    if (bytes[i] !== QUOTE) return false;
    // The reference handles a repeated field, a key of the wrong length, and other invalid values.
    if (isKey) {
      if (request.key !== '' || i === value || i - value > KEY_LENGTH_MAX) return false;
      request.key = bytes.toString('latin1', value, i);
    } else if (isApi) {
      const apiId = bytes.toString('latin1', value, i);
      if (request.apiId !== undefined || !API_ID.test(apiId)) return false;
      request.apiId = apiId;
    } else if (isClientIp) {
      const clientIp = bytes.toString('latin1', value, i);
      if (request.inBody.clientIp !== undefined || isIP(clientIp) === 0) return false;
      request.inBody.clientIp = clientIp;
    } else {
      if (request.inBody.origin !== undefined || i - value > ORIGIN_LENGTH_MAX) return false;
      request.inBody.origin = bytes.toString('latin1', value, i);
    }
    i++;
    if (bytes[i] === CLOSE) return i + 1 === end && request.key !== '';
    if (bytes[i] !== COMMA) return false;
    if (bytes[i + 1] === SPACE) i++;
  }
}

/**
 * Returns the requirements and the hold in the rest of a body, as the reference reads them; undefined if the rest
 * contains anything else.
 */
function endAt(bytes: Buffer, at: number, end: number, { ends, questionOf }: Generation): End | undefined {
  if (end - at > END_LENGTH_MAX) return undefined;
  const text = bytes.toString('latin1', at, end);
  const present = ends.get(text);
  if (present) return present;
  try {
    const body = Buffer.concat([BEFORE_END, bytes.subarray(at, end)]);
    const { key, apiId, presenter, tags, requirements, isRecheck, hold } = questionOf(parseJson(body));
    if (key !== OTHER_KEY || apiId !== undefined || tags !== undefined) return undefined;
    if (!isUnknown(presenter)) return undefined;
    if (isRecheck) return undefined;
    const rest = { requirements, hold };
    ends.set(text, rest);
    return rest;
  } catch {
    return undefined;
  }
}
