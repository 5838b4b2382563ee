import type { ServerResponse } from 'node:http';
import { ApiError } from '#shared/errors.ts';
import { perVerdict, type VerdictCode } from '#shared/verdict-codes.ts';
import type { LimitOutcome, Spending } from '../core/allowances/allowance.ts';
import { type Limit, ownLimit } from '../core/allowances/limits.ts';
import { type Question, questionAbout } from '../core/question.ts';
import type { Decider, Verdict } from '../core/verdict.ts';
import { PROBLEM_TYPE, problemBody } from '../http/problem.ts';
import { answer } from '../http/respond.ts';
import type { Handler, Routes } from '../http/router.ts';
import { type CredentialFault, credentialOf, type HeaderLines, type Source } from './credentials.ts';
import { AUTHZ_PREFIX, type OriginalRequest, parseAuthzPath } from './dialects.ts';
import { type HeaderLine, identityHeaders } from './identity-headers.ts';

/** Settings of the endpoints for gateways. */
export interface AuthzSettings {
  readonly sources: readonly Source[];
  /** True if `X-Key-Meta` is one of the identity headers. */
  readonly withMeta: boolean;
  /** True if a CORS preflight, which never carries a key, is allowed without one. */
  readonly allowPreflight: boolean;
}

/** The outcome of a question: a verdict, or why there was no key to judge. */
export type AuthzOutcome = Verdict | { readonly code: CredentialFault | 'PREFLIGHT' };

/** An answer to a gateway. Where there is a body its type is `PROBLEM_TYPE`. */
export interface AuthzAnswer {
  readonly status: number;
  readonly headers: readonly HeaderLine[];
  readonly body: string;
}

/** The endpoints below `/authz/` that gateways ask, whatever the method; see deploy/gateways/README.md. */
export function authzRoutes(answers: Decider, settings: AuthzSettings): Routes['below'] {
  const handler: Handler = (request, response, requestId) => {
    const { method = '', url = '', headersDistinct } = request;
    const path = parseAuthzPath(url);
    if (path === undefined) throw new ApiError('NOT_FOUND', 'no such path');
    const { dialect, rest } = path;
    const send = (outcome: AuthzOutcome) =>
      sendAnswer(response, authzAnswer(outcome, requestId, settings.withMeta, dialect.knows429));
    const original = dialect.original({ method, rest, headers: headersDistinct });
    const asked = clientQuestion(original, headersDistinct, path, settings);
    if ('code' in asked) return send(asked);
    const outcome = answers.decide(asked);
    if (outcome !== undefined) return send(outcome);
    return answers.lookUp(asked).then(send);
  };
  return [[AUTHZ_PREFIX, handler]];
}

/** A question, or the outcome where there is no key to judge. */
export type Asked = Question | Extract<AuthzOutcome, { code: CredentialFault | 'PREFLIGHT' }>;

/**
 * Reads the question in a client's request.
 * @param original as the client sent it, where that is known
 */
export function clientQuestion(
  original: OriginalRequest,
  headers: HeaderLines,
  { apiId, requirements }: Pick<Question, 'apiId' | 'requirements'>,
  settings: AuthzSettings,
): Asked {
  if (settings.allowPreflight && isPreflight(original.method, headers)) return { code: 'PREFLIGHT' };
  const credential = credentialOf(headers, original.target, settings.sources);
  return 'key' in credential
    ? questionAbout(credential.key, { apiId, requirements })
    : { code: credential.fault };
}

/**
 * The answer that gateways of every dialect understand: 200 without a body allows, all else refuses. `X-Key-Code` names a
 * refusal that is about how much the key was used, for a gateway that makes it 429 itself.
 * @param knows429 whether the gateway can be answered so
 */
export function authzAnswer(
  outcome: AuthzOutcome,
  requestId: string,
  withMeta: boolean,
  knows429 = true,
): AuthzAnswer {
  const { code } = outcome;
  if (code === 'VALID' || code === 'PREFLIGHT') {
    const entry = 'entry' in outcome ? outcome.entry : undefined;
    return { status: 200, headers: identityHeaders(entry, withMeta), body: '' };
  }
  const [status, challenge, detail] = REFUSALS[code];
  const headers: HeaderLine[] = challenge === undefined ? [] : [['WWW-Authenticate', challenge]];
  if (status !== 429) return { status, headers, body: problemBody({ status, code, detail, requestId }) };
  headers.push(['X-Key-Code', code], ...whenAgain('spending' in outcome ? outcome.spending : undefined));
  const told = knows429 ? 429 : 403;
  return { status: told, headers, body: problemBody({ status: told, code, detail, requestId }) };
}

/** Sends an answer as a whole response. */
export function sendAnswer(response: ServerResponse, { status, headers, body }: AuthzAnswer): void {
  for (const [name, value] of headers) response.setHeader(name, value);
  answer(response, status, body === '' ? undefined : PROBLEM_TYPE, body);
}

/** A limit of an answer as `authzAnswer` takes it. */
export const limitOutcome = ({
  name,
  limit,
  duration,
  ...state
}: Pick<Limit, 'name' | 'limit'> & { readonly duration: number } & Omit<
    LimitOutcome,
    'of'
  >): LimitOutcome => ({
  of: ownLimit(name, limit, duration),
  ...state,
});

/** Headers that tell a refused client when to ask again: `RateLimit` and its policy as the IETF's draft of them has it. */
function whenAgain({ remaining = 0, limits = [], retryMs }: Partial<Spending> = {}): HeaderLine[] {
  const seconds = retryMs === undefined ? undefined : secondsOf(retryMs);
  const until = seconds === undefined ? '' : `;t=${seconds}`;
  const limit = limits.find(({ exceeded }) => exceeded);
  if (limit === undefined) {
    return [
      ['Retry-After', String(seconds ?? RETRY_AFTER_S)],
      ['RateLimit', `"credits";r=${remaining}${until}`],
    ];
  }
  return [
    ['Retry-After', String(seconds ?? 1)],
    ['RateLimit', `"${limit.of.name}";r=${limit.remaining}${until}`],
    ['RateLimit-Policy', `"${limit.of.name}";q=${limit.of.limit};w=${secondsOf(limit.of.durationMs)}`],
  ];
}

const secondsOf = (ms: number) => Math.max(1, Math.ceil(ms / 1000));

/** Without a refill credits come back when somebody gives them: nobody knows when to ask again. */
const RETRY_AFTER_S = 60;

const BEARER = 'Bearer realm="api"';
const INVALID = `${BEARER}, error="invalid_token"`;

/** Status, challenge and what to tell the client. */
const REFUSALS: Readonly<
  Record<
    VerdictCode | CredentialFault,
    readonly [status: number, challenge: string | undefined, detail: string]
  >
> = {
  KEY_MISSING: [401, BEARER, 'An API key is required.'],
  KEY_AMBIGUOUS: [401, `${BEARER}, error="invalid_request"`, 'Send one API key, in one place.'],
  ...perVerdict(({ status, sentence }) => [status, status === 401 ? INVALID : undefined, sentence] as const),
};

function isPreflight(method: string | undefined, headers: HeaderLines): boolean {
  return (
    method === 'OPTIONS' &&
    headers['origin'] !== undefined &&
    headers['access-control-request-method'] !== undefined
  );
}
