import { API_ID_PATTERN } from '#shared/contract/api-id.ts';
import { ApiError } from '#shared/contract/errors.ts';
import { DEFAULT_REQUIREMENTS, type Requirements, requiring } from '../core/question/requirements.ts';
import type { HeaderLines } from './credentials.ts';
import { ANSWERS, ANSWERS_WITHOUT_429, type GatewayAnswers } from './gateway-answer.ts';

/** The client's request line, as far as the gateway tells it. */
export interface OriginalRequest {
  readonly method: string | undefined;
  /** Path and query. */
  readonly target: string | undefined;
}

/** A question as it arrived: its own method, its path behind the dialect's name, its headers. */
interface ArrivedQuestion {
  readonly method: string;
  readonly rest: string;
  readonly headers: HeaderLines;
}

/** A way in which gateways ask over HTTP. */
export interface Dialect {
  /** Name in its paths: `/authz/<name>`, and between the two what the key must be: `api/<apiId>/`, then `require/<query>/`. */
  readonly name: string;
  /** True if the gateway puts the client's path and query behind that. */
  readonly takesPath: boolean;
  /** Finds what the client asked for. */
  readonly original: (question: ArrivedQuestion) => OriginalRequest;
  /** Answers as the gateway understands them. */
  readonly answers: GatewayAnswers;
  /** Names of the gateways that ask so, for the documentation. */
  readonly gateways: string;
  /** Name in the OpenAPI document. */
  readonly operationId: string;
}

/** The one table of dialects. A new one is a row: routing, both lanes and the documentation read it. */
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

/** The beginning of every path at which gateways ask. */
export const AUTHZ_PREFIX = '/authz/';

/** A path at which a gateway asks, in its parts. */
export interface AuthzPath {
  readonly dialect: Dialect;
  /** The API that the key must be of; undefined = any. */
  readonly apiId: string | undefined;
  /** The permissions in its path. */
  readonly requirements: Requirements;
  /** Path and query behind the dialect's name. */
  readonly rest: string;
}

/** Reads a path below `/authz/`; undefined = no dialect has it. Throws BAD_REQUEST where it asks for no permissions that there can be. */
export function parseAuthzPath(url: string): AuthzPath | undefined {
  const [, apiId, query, name, rest = ''] = PATH.exec(url) ?? [];
  const dialect = DIALECTS.find((row) => row.name === name);
  if (dialect === undefined || !(dialect.takesPath || /^(?:\?|$)/.test(rest))) return undefined;
  const requirements = query === undefined ? DEFAULT_REQUIREMENTS : requiringEncoded(query, 'require');
  return { dialect, apiId, requirements, rest };
}

/**
 * The requirements of a request that needs permissions, which stand in a path, percent-encoded, or in a gateway's configuration.
 * Throws BAD_REQUEST.
 */
export const requiringEncoded = (query: string, place: string): Requirements =>
  requiring(decodedOf(query), (fault) => new ApiError('BAD_REQUEST', `${place}: ${fault}`));

/** The text behind a percent-encoding; what is none is no query either. */
function decodedOf(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const NAMES = DIALECTS.map(({ name }) => name).join('|');
const PATH = new RegExp(
  `^${AUTHZ_PREFIX}(?:api/(${API_ID_PATTERN})/)?(?:require/([^/?#]*)/)?(${NAMES})(?![\\w-])(.*)$`,
  's',
);

/** Takes the client's method and target from two headers that the gateway sets. */
function inHeaders(method: string, target: string): Dialect['original'] {
  return ({ headers }) => ({ method: onlyLine(headers[method]), target: onlyLine(headers[target]) });
}

/** The value of a header that a gateway sets. Where the client's own stands beside it, neither can be believed. */
function onlyLine(lines: readonly string[] | undefined): string | undefined {
  return lines?.length === 1 ? lines[0] : undefined;
}
