import type { IncomingMessage, ServerResponse } from 'node:http';
import { ApiError, RETRY_AFTER_SECONDS } from '#shared/rules/errors.ts';
import type { Callers } from '../../core/callers.ts';
import type { RefusalLog } from '../../core/ports.ts';
import { KEY_LENGTH_MAX, questionAbout } from '../../core/question.ts';
import { answerOn, type Verdict, type VerdictSource } from '../../core/verdict.ts';
import { fieldValues, showsKey } from '../../core/verdict-body.ts';
import { FORM, readBody } from './json-body.ts';
import { answerJson } from './respond.ts';
import type { Handler } from './server.ts';

/**
 * Returns the handler of POST /oauth2/introspect: token introspection (RFC 7662), for callers that know keys only as
 * opaque access tokens. It is a verification like any other: counted, and taken from credits and limits that always apply.
 * A refused key is not active, whatever the reason.
 */
export function introspectRoute(
  verifier: VerdictSource,
  bodyBytesMax: number,
  {
    callers,
    refusals,
  }: { readonly callers?: Callers | undefined; readonly refusals?: RefusalLog | undefined },
): Handler {
  const introspect = async (request: IncomingMessage, response: ServerResponse, requestId: string) => {
    const authorization = asBearer(request.headers.authorization);
    await callers?.admit(authorization, 'keys');
    const token = tokenIn(await readBody(request, response, bodyBytesMax, FORM));
    // The root key may have been disabled while the body arrived.
    const scope = await callers?.admit(authorization, 'keys');
    if (token.length > KEY_LENGTH_MAX) return answerJson(response, 200, INACTIVE);
    const question = questionAbout(token, { allowedApis: scope?.allowedApis });
    await answerOn(verifier, question, (verdict) => {
      refusals?.note(verdict, question, { requestId });
      answerJson(response, 200, bodyOf(verdict));
    });
  };
  return async (request, response, requestId) => {
    try {
      await introspect(request, response, requestId);
    } catch (error) {
      if (!(error instanceof ApiError) || error.code === 'INTERNAL_SERVER_ERROR') throw error;
      answerFault(response, error);
    }
  };
}

const INACTIVE = '{"active":false}';

/** Returns the answer (RFC 7662 §2.2). Nothing is told about a token that is not active. */
function bodyOf(verdict: Verdict): string {
  if (verdict.code !== 'VALID' || !showsKey(verdict)) return INACTIVE;
  const { keyId, apiId, externalId, permissions, expires } = fieldValues(verdict);
  return JSON.stringify({
    active: true,
    ...{ scope: permissions?.join(' '), client_id: keyId, sub: externalId ?? keyId, aud: apiId },
    exp: expires === undefined ? undefined : Math.floor(expires / 1000),
    token_type: 'Bearer',
  });
}

/** Returns the one `token` of a form. Parameters that nobody knows are ignored (RFC 6749 §3.2). */
function tokenIn(body: Buffer): string {
  const tokens = new URLSearchParams(body.toString('latin1')).getAll('token');
  const [token = ''] = tokens;
  if (token === '') throw new ApiError('BAD_REQUEST', 'token: required, the key to ask about');
  if (tokens.length > 1) throw new ApiError('BAD_REQUEST', 'token: must be given once');
  return token;
}

/**
 * Returns a root key that came as the password of HTTP Basic, as clients of OAuth send their secret (RFC 6749 §2.3.1), in
 * the form of a bearer's; any other header unchanged.
 */
function asBearer(authorization: string | undefined): string | undefined {
  const [, encoded] = /^Basic +([A-Za-z0-9+/]+={0,2}) *$/i.exec(authorization ?? '') ?? [];
  if (encoded === undefined) return authorization;
  const pair = Buffer.from(encoded, 'base64').toString();
  // As a value of a form, in which the client has encoded it.
  const password = new URLSearchParams(`p=${pair.slice(pair.indexOf(':') + 1).replaceAll('&', '%26')}`).get(
    'p',
  );
  return `Bearer ${password}`;
}

/** Codes of OAuth for the project's (RFC 6749 §5.2, RFC 6750 §3.1). */
const CODES: Partial<Record<ApiError['code'], string>> = {
  UNAUTHORIZED: 'invalid_client',
  INSUFFICIENT_PERMISSIONS: 'insufficient_scope',
  SERVICE_UNAVAILABLE: 'temporarily_unavailable',
};

function answerFault(response: ServerResponse, { code, status, message }: ApiError): void {
  if (code === 'SERVICE_UNAVAILABLE') response.setHeader('Retry-After', RETRY_AFTER_SECONDS);
  if (code === 'UNAUTHORIZED') response.setHeader('WWW-Authenticate', 'Basic realm="keyfence", Bearer');
  const error = CODES[code] ?? 'invalid_request';
  answerJson(response, status, JSON.stringify({ error, error_description: message }));
}
