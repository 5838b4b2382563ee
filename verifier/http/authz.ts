import { ApiError } from '#shared/contract/errors.ts';
import { type Question, questionAbout } from '../core/question.ts';
import { type RefusalLog, routeOf, type Verdict, type VerdictSource } from '../core/verdict.ts';
import type { ClientIps } from './client-ips.ts';
import { type CredentialFault, credentialOf, type HeaderLines, type Source } from './credentials.ts';
import { AUTHZ_PREFIX, type OriginalRequest, parseAuthzPath } from './dialects.ts';
import { type AuthzOutcome, sendAnswer } from './gateway-answer.ts';
import type { Handler, Routes } from './router.ts';

/** Settings of the endpoints for gateways. */
export interface AuthzSettings {
  readonly sources: readonly Source[];
  /** True = the identity headers include `X-Key-Meta`. */
  readonly withMeta: boolean;
  /** True = a CORS preflight, which never carries a key, is allowed. */
  readonly allowPreflight: boolean;
  /** undefined = the addresses of clients are unknown. */
  readonly clientIps?: ClientIps | undefined;
}

/** Returns the routes below `/authz/` for gateways, for every method; see deploy/gateways/README.md. */
export function authzRoutes(
  verifier: VerdictSource,
  settings: AuthzSettings,
  refusals?: RefusalLog,
): Routes['below'] {
  const handler: Handler = (request, response, requestId) => {
    const { method = '', url = '', headersDistinct } = request;
    const path = parseAuthzPath(url);
    if (path === undefined) throw new ApiError('NOT_FOUND', 'no such path');
    const { dialect, rest } = path;
    const send = (outcome: AuthzOutcome) =>
      sendAnswer(response, dialect.answers.answer(outcome, requestId, settings.withMeta));
    const original = dialect.original({ method, rest, headers: headersDistinct });
    const clientIp = settings.clientIps?.inHeaders(headersDistinct);
    const question = clientQuestion(original, headersDistinct, { ...path, clientIp }, settings);
    if ('code' in question) return send(question);
    const conclude = (verdict: Verdict) => {
      refusals?.note(verdict, { requestId, clientIp, route: routeOf(original.method, original.target) });
      send(verdict);
    };
    const verdict = verifier.decide(question);
    if (verdict !== undefined) return conclude(verdict);
    return verifier.lookUp(question).then(conclude);
  };
  return [[AUTHZ_PREFIX, handler]];
}

/** A question, or the outcome of a request without a usable key. */
export type ClientQuestion = Question | Extract<AuthzOutcome, { code: CredentialFault | 'PREFLIGHT' }>;

/**
 * Reads the question from a client's request.
 * @param original the client's own request line, as far as it is known
 */
export function clientQuestion(
  original: OriginalRequest,
  headers: HeaderLines,
  { apiId, clientIp, requirements }: Pick<Question, 'apiId' | 'clientIp' | 'requirements'>,
  settings: AuthzSettings,
): ClientQuestion {
  if (settings.allowPreflight && isPreflight(original.method, headers)) return { code: 'PREFLIGHT' };
  const credential = credentialOf(headers, original.target, settings.sources);
  return 'key' in credential
    ? questionAbout(credential.key, { apiId, clientIp, requirements })
    : { code: credential.fault };
}

function isPreflight(method: string | undefined, headers: HeaderLines): boolean {
  return (
    method === 'OPTIONS' &&
    headers['origin'] !== undefined &&
    headers['access-control-request-method'] !== undefined
  );
}
