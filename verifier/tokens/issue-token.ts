import { ApiError, type ErrorCode, unavailable } from '#shared/rules/errors.ts';
import { VERDICTS } from '#shared/rules/verdict-codes.ts';
import { unknownPart } from '../core/form.ts';
import { DEFAULT_REQUIREMENTS, KEY_LENGTH_MAX, questionAbout, requiring } from '../core/question.ts';
import { answerOn, type VerdictSource } from '../core/verdict.ts';
import { readJson } from '../doors/http/json-body.ts';
import { answerJson } from '../doors/http/respond.ts';
import type { Handler } from '../doors/http/server.ts';
import type { CallParts } from '../extra.ts';
import type { Issue, NoToken, TokenIssuer } from './tokens.ts';

const AUDIENCE_LENGTH_MAX = 256;
const PERMISSIONS_MAX = 100;
const FIELDS = ['key', 'audience', 'permissions'];

/** The errors of refused keys, by the status that a gateway would answer. */
const REFUSALS: Readonly<Record<number, ErrorCode>> = {
  ...{ 401: 'UNAUTHORIZED', 403: 'INSUFFICIENT_PERMISSIONS', 429: 'RATE_LIMITED' },
};

/**
 * Returns the handler of POST /v1/keys.issueToken: a JWT about a key, which ends before a disable of the key is complete. It is a
 * verification like any other: counted, and taken from credits and limits that always apply.
 */
export function issueTokenRoute(
  verifier: VerdictSource,
  bodyBytesMax: number,
  tokens: TokenIssuer,
  { callers, refusals }: Omit<CallParts, 'verifier'>,
): Handler {
  return async (request, response, requestId) => {
    const { authorization } = request.headers;
    await callers?.admit(authorization, 'keys');
    const { key, audience, permissions } = requestIn(await readJson(request, response, bodyBytesMax));
    // The root key may have been disabled while the body arrived.
    const scope = await callers?.admit(authorization, 'keys');
    const requirements = permissions?.length
      ? requiring({ and: permissions }, (fault) => badRequest(`permissions: ${fault}`))
      : DEFAULT_REQUIREMENTS;
    const question = questionAbout(key, { requirements, allowedApis: scope?.allowedApis });
    const recheck = { ...question, isRecheck: true };
    const first = await answerOn(verifier, recheck, (verdict) => verdict);
    // Nothing is taken for a token that there cannot be.
    if (first.code === 'VALID') issueFor(audience, tokens.issue(verifier.decide(recheck)));
    const verdict = await answerOn(verifier, question, (each) => each);
    refusals?.note(verdict, question, { requestId });
    const { code } = verdict;
    if (code !== 'VALID')
      throw new ApiError(
        REFUSALS[VERDICTS[code].status] ?? 'UNAUTHORIZED',
        `key: ${VERDICTS[code].sentence}`,
      );
    // The verdict may be older than the lease.
    const issue = issueFor(audience, tokens.issue(verifier.decide(recheck)));
    const token = tokens.sign(issue, audience, permissions);
    answerJson(response, 200, JSON.stringify({ token, expiresAt: 1000 * issue.endS, requestId }));
  };
}

/** Returns what is issued; throws if nothing is, or not for this audience. */
function issueFor(audience: string | undefined, issue: Issue | NoToken): Issue {
  if (typeof issue === 'string') throw noToken(issue);
  if (audience === undefined || issue.audiences.includes(audience)) return issue;
  throw badRequest(
    'audience: must be one that the API of the key has; list it in its `tokenAudiences` by apis.updateApi',
  );
}

/** Returns the reason for which a good key gets no token. */
const noToken = (reason: NoToken): ApiError =>
  reason === 'off'
    ? badRequest('key: its API has no tokens; set `tokens` by apis.updateApi')
    : unavailable(
        "no token may be issued now: a control plane is of an older release (see `keyfence doctor`), this machine's clock differs from that of Redis by more than a second, or Redis has not answered for seconds",
      );

interface TokenRequest {
  readonly key: string;
  readonly audience: string | undefined;
  /** Those that the token has of the key's; undefined = all. */
  readonly permissions: readonly string[] | undefined;
}

function requestIn(body: Record<string, unknown>): TokenRequest {
  const other = Object.keys(body).find((name) => !FIELDS.includes(name));
  if (other !== undefined) throw badRequest(unknownPart(other, 'field'));
  const { key, audience, permissions } = body;
  if (!isText(key, KEY_LENGTH_MAX))
    throw badRequest(`key: required, text of at most ${KEY_LENGTH_MAX} characters`);
  if (audience !== undefined && !isText(audience, AUDIENCE_LENGTH_MAX))
    throw badRequest(`audience: must be text of 1 to ${AUDIENCE_LENGTH_MAX} characters`);
  const isList = Array.isArray(permissions) && permissions.length <= PERMISSIONS_MAX;
  if (permissions !== undefined && !(isList && permissions.every((each) => isText(each, 512))))
    throw badRequest(`permissions: must be a list of at most ${PERMISSIONS_MAX} permissions of the key`);
  return { key, audience, permissions } as TokenRequest;
}

const isText = (value: unknown, lengthMax: number): value is string =>
  typeof value === 'string' && value !== '' && value.length <= lengthMax;

const badRequest = (message: string) => new ApiError('BAD_REQUEST', message);
