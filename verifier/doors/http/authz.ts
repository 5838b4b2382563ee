import type { Clock } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { Seldom } from '#shared/process/seldom.ts';
import { ApiError } from '#shared/rules/errors.ts';
import type { Presenter } from '#shared/rules/presenter.ts';
import { ANY_API, API_ID_PATTERN } from '#shared/rules/slugs.ts';
import type { RefusalLog } from '../../core/ports.ts';
import {
  DEFAULT_REQUIREMENTS,
  type Question,
  questionAbout,
  type Requirements,
  requiring,
} from '../../core/question.ts';
import { answerOn, type QuestionBasics, routeOf, type VerdictSource } from '../../core/verdict.ts';
import type { AnonymousLimit } from './anonymous-limit.ts';
import {
  type ClientIps,
  type CredentialFault,
  credentialOf,
  type HeaderLines,
  presenterFrom,
} from './credentials.ts';
import {
  ANSWERS,
  ANSWERS_WITHOUT_429,
  type AnonymousRefusal,
  type AnswerSettings,
  type AuthzOutcome,
  type GatewayAnswers,
  readableByPage,
  sendAnswer,
} from './gateway-answer.ts';
import type { Handler, Routes } from './server.ts';

/** The client's request line, as far as the gateway reports it. */
interface OriginalRequest {
  readonly method: string | undefined;
  /** Path and query. */
  readonly target: string | undefined;
}

/** A gateway's request: its method, its path after the dialect's name, and its headers. */
interface ArrivedQuestion {
  readonly method: string;
  readonly rest: string;
  readonly headers: HeaderLines;
}

/** A form in which gateways ask over HTTP. */
interface Dialect {
  /**
   * Name in the path `/authz/<name>`. Requirements come between the two: `api/<apiId>/`, then
   * `require/<query>/`, then `optional/`.
   */
  readonly name: string;
  /** True if the gateway appends the client's path and query. */
  readonly takesPath: boolean;
  /** Returns the client's request line. */
  readonly original: (question: ArrivedQuestion) => OriginalRequest;
  /** The answers in the form that the gateway understands. */
  readonly answers: GatewayAnswers;
  /** Names of the gateways that use this dialect, for the documentation. */
  readonly gateways: string;
  /** Operation id in the OpenAPI document. */
  readonly operationId: string;
}

/**
 * The only table of dialects. To add a dialect, add a row: routing, both lanes and the documentation read the
 * table.
 */
export const DIALECTS: readonly Dialect[] = [
  {
    name: 'auth-request',
    takesPath: false,
    original: inHeaders('x-original-method', 'x-original-uri'),
    answers: ANSWERS_WITHOUT_429,
    gateways: 'nginx and HAProxy',
    operationId: 'askAuthRequest',
  },
  {
    name: 'forward-auth',
    takesPath: false,
    original: inHeaders('x-forwarded-method', 'x-forwarded-uri'),
    answers: ANSWERS,
    gateways: 'Caddy, Traefik and APISIX',
    operationId: 'askForwardAuth',
  },
  {
    name: 'ext-authz',
    takesPath: true,
    original: ({ method, rest }) => ({ method, target: rest }),
    answers: ANSWERS,
    gateways: 'Envoy and Istio',
    operationId: 'askExtAuthz',
  },
];

/** The beginning of every path for gateways. */
export const AUTHZ_PREFIX = '/authz/';

/** The parts of a path for gateways. */
export interface AuthzPath {
  readonly dialect: Dialect;
  /** The API to which the key must belong, or ANY_API; undefined = the path names none. */
  readonly api: string | undefined;
  /** The permissions in the path. */
  readonly requirements: Requirements;
  /** True if a request without a key may pass. */
  readonly isOptional: boolean;
  /** Path and query after the dialect's name. */
  readonly rest: string;
}

/**
 * Parses a path below `/authz/`; undefined = no dialect matches. Throws BAD_REQUEST if the path's permission
 * query is invalid.
 */
export function parseAuthzPath(url: string): AuthzPath | undefined {
  const [, api, query, optional, name, rest = ''] = PATH.exec(url) ?? [];
  const dialect = DIALECTS.find((row) => row.name === name);
  if (dialect === undefined || !(dialect.takesPath || /^(?:\?|$)/.test(rest))) return undefined;
  const requirements = query === undefined ? DEFAULT_REQUIREMENTS : requiringEncoded(query, 'require');
  return { dialect, api, requirements, isOptional: optional !== undefined, rest };
}

/**
 * Returns requirements with the permissions of a query, which comes percent-encoded from a path or from a
 * gateway's configuration. Throws BAD_REQUEST.
 */
export const requiringEncoded = (query: string, place: string): Requirements =>
  requiring(decodedOf(query), (fault) => new ApiError('BAD_REQUEST', `${place}: ${fault}`));

/** Decodes percent-encoding. Returns an invalid encoding unchanged; it is no valid query either. */
function decodedOf(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const NAMES = DIALECTS.map(({ name }) => name).join('|');
const PATH = new RegExp(
  `^${AUTHZ_PREFIX}(?:api/(${API_ID_PATTERN}|\\${ANY_API})/)?(?:require/([^/?#]*)/)?(optional/)?(${NAMES})(?![\\w-])(.*)$`,
  's',
);

/** Reads the client's method and target from two headers that the gateway sets. */
function inHeaders(method: string, target: string): Dialect['original'] {
  return ({ headers }) => ({ method: onlyLine(headers[method]), target: onlyLine(headers[target]) });
}

/**
 * Returns the value of a header that a gateway sets. If the client's own header stands beside it, neither can
 * be trusted.
 */
function onlyLine(lines: readonly string[] | undefined): string | undefined {
  return lines?.length === 1 ? lines[0] : undefined;
}

/**
 * Returns the API to which a key must belong; undefined = any for which the verifier answers. Throws BAD_REQUEST if a
 * question names no API where it must.
 */
export function apiNamed(
  api: string | undefined,
  place: string,
  { needsApi }: Pick<AuthzSettings, 'needsApi'>,
): string | undefined {
  if (api === undefined && needsApi) {
    throw new ApiError(
      'BAD_REQUEST',
      `${place}: required, with the API to which a key must belong, or ${ANY_API} for any; or set API_IDS of the verifier`,
    );
  }
  return api === ANY_API ? undefined : api;
}

/** The log of gateways' questions that are wrong in themselves: their configuration must be corrected. */
export class WrongQuestions {
  readonly #log: Pick<Logger, 'error'>;
  readonly #line: Seldom;

  constructor(log: Pick<Logger, 'error'>, clock: Clock) {
    this.#log = log;
    this.#line = new Seldom(clock);
  }

  /** Notes an error of a question, if it is the gateway's. */
  note(error: unknown): void {
    if (!(error instanceof ApiError) || (error.code !== 'BAD_REQUEST' && error.code !== 'NOT_FOUND')) return;
    const fault = error.message.slice(0, 256);
    this.#line.tell((unsaid) =>
      this.#log.error({ fault, unsaid }, 'a gateway asks wrongly, and is refused: correct its configuration'),
    );
  }
}

/** Settings of the endpoints for gateways. */
export interface AuthzSettings extends AnswerSettings {
  /** True = a question must name its API, because the verifier answers for every API. */
  readonly needsApi: boolean;
  /** undefined = nobody is told of wrong questions. */
  readonly wrongQuestions?: WrongQuestions | undefined;
  /**
   * True = web pages ask: a CORS preflight, which never carries a key, is allowed, and any page may read a refusal of a key
   * without a list of origins.
   */
  readonly allowPreflight: boolean;
  /** undefined = the addresses of clients are unknown. */
  readonly clientIps?: ClientIps | undefined;
  /** undefined = requests without a key have no limit, where keys are optional. */
  readonly anonymousLimit?: AnonymousLimit | undefined;
}

/** Returns the routes below `/authz/` for gateways, for every method; see deploy/gateways/README.md. */
export function authzRoutes(
  verifier: VerdictSource,
  settings: AuthzSettings,
  refusals?: RefusalLog,
): Routes['below'] {
  const read = (url: string) => {
    try {
      const path = parseAuthzPath(url);
      if (path === undefined) throw new ApiError('NOT_FOUND', `no such path below ${AUTHZ_PREFIX}`);
      return { ...path, apiId: apiNamed(path.api, 'api/<apiId>/ in the path', settings) };
    } catch (error) {
      settings.wrongQuestions?.note(error);
      throw error;
    }
  };
  const handler: Handler = (request, response, requestId) => {
    const { method = '', url = '', headersDistinct } = request;
    const path = read(url);
    const { dialect, rest } = path;
    const send = (outcome: AuthzOutcome) => {
      const answer = dialect.answers.answer(outcome, requestId, settings);
      sendAnswer(
        response,
        readableByPage(answer, outcome, question.presenter.origin, settings.allowPreflight),
      );
    };
    const original = dialect.original({ method, rest, headers: headersDistinct });
    const clientIp = settings.clientIps?.inHeaders(headersDistinct);
    const question = clientQuestion(original, headersDistinct, { ...path, clientIp }, settings);
    if ('code' in question) return send(question);
    return answerOn(verifier, question, (verdict) => {
      refusals?.note(verdict, question, { requestId, route: routeOf(original.method, original.target) });
      send(verdict);
    });
  };
  return [[AUTHZ_PREFIX, handler]];
}

/** A question, or the outcome of a request without a usable key. */
export type ClientQuestion =
  | Question
  | ((AnonymousRefusal | { readonly code: CredentialFault | 'PREFLIGHT' | 'ANONYMOUS' }) &
      Pick<Question, 'presenter'>);

/**
 * Reads the question from a client's request.
 * @param original the client's own request line, as far as it is known
 */
export function clientQuestion(
  original: OriginalRequest,
  headers: HeaderLines,
  {
    apiId,
    clientIp,
    requirements,
    hold,
    isOptional = false,
  }: Omit<QuestionBasics, 'presenter'> &
    Pick<Presenter, 'clientIp'> &
    Partial<Pick<Question, 'hold'>> & { readonly isOptional?: boolean },
  settings: AuthzSettings,
): ClientQuestion {
  const presenter = presenterFrom(headers, clientIp);
  if (settings.allowPreflight && isPreflight(original.method, headers))
    return { code: 'PREFLIGHT', presenter };
  const credential = credentialOf(headers, original.target, settings.sources);
  if ('key' in credential) return questionAbout(credential.key, { apiId, presenter, requirements, hold });
  if (!isOptional || credential.fault !== 'KEY_MISSING') return { code: credential.fault, presenter };
  return { ...(settings.anonymousLimit?.take(clientIp) ?? { code: 'ANONYMOUS' }), presenter };
}

function isPreflight(method: string | undefined, headers: HeaderLines): boolean {
  return (
    method === 'OPTIONS' &&
    headers['origin'] !== undefined &&
    headers['access-control-request-method'] !== undefined
  );
}
