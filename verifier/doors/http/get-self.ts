import { windowText } from '#shared/protocol/records/limit.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { perVerdict, type VerdictCode } from '#shared/rules/verdict-codes.ts';
import { LOOK, questionAbout } from '../../core/question.ts';
import { answerOn, type LimitOutcome, type Verdict, type VerdictSource } from '../../core/verdict.ts';
import { fieldValues, showsKey } from '../../core/verdict-body.ts';
import { answerJson } from './respond.ts';
import type { Handler } from './server.ts';

const BEARER = /^Bearer +([!-~]{1,512}) *$/i;
const SENTENCES: Readonly<Record<VerdictCode, string>> = perVerdict(({ sentence }) => sentence);

/**
 * Returns the handler of POST /v1/keys.getSelf: what a key has left, told to who has it. The key is its own authorisation; the
 * answer takes nothing, and is not counted.
 */
export function getSelfRoute(verifier: VerdictSource, nowMs: () => number): Handler {
  return async (request, response, requestId) => {
    const [, key] = BEARER.exec(request.headers.authorization ?? '') ?? [];
    if (key === undefined)
      throw new ApiError('UNAUTHORIZED', 'Authorization: required, the key itself as Bearer');
    if (Number(request.headers['content-length'] ?? 0) > 2)
      throw new ApiError('BAD_REQUEST', 'body: must be empty, or {}; the key is in Authorization');
    const question = questionAbout(key, { requirements: LOOK });
    await answerOn(verifier, question, (verdict) => {
      if (verdict.code === 'FORBIDDEN')
        throw new ApiError(
          'INSUFFICIENT_PERMISSIONS',
          'the key is bound to addresses or web pages; ask its owner',
        );
      if (verdict.code !== 'VALID') throw new ApiError('UNAUTHORIZED', SENTENCES[verdict.code]);
      answerJson(response, 200, JSON.stringify({ ...selfOf(verdict, nowMs()), requestId }));
    });
  };
}

/** Returns the key and what it has left, in the form of `keys.getAllowances`. */
function selfOf(verdict: Verdict, nowMs: number): object {
  if (!showsKey(verdict)) throw new Error('a good key is shown');
  const { entry, spending = { code: 'VALID' }, effectivePermissions } = verdict;
  const { keyId, apiId, name, externalId, environment, roles, permissions, expires } = fieldValues(verdict);
  const { identity } = effectivePermissions ?? {};
  const facts = ({ limit, remaining }: LimitOutcome) => {
    // Equal limits are one object, and that of the key applies.
    const isOwn = entry.limits?.includes(limit) === true;
    const isShared = !isOwn && identity?.limits?.includes(limit) === true;
    return {
      name: limit.name,
      limit: limit.limit,
      sharedBy: isShared || (limit.isPerIdentity && identity) ? 'identity' : 'key',
      from: isOwn ? 'key' : isShared ? 'identity' : 'role',
      used: Math.max(0, limit.limit - remaining),
    };
  };
  const { remaining, limits = [], places = [] } = spending;
  return {
    ...{ keyId, apiId, name, externalId, environment, roles, permissions, expires, at: Math.round(nowMs) },
    credits:
      remaining === undefined ? undefined : { remaining, sharedBy: entry.pool === '' ? 'identity' : 'key' },
    limits: limits.map((of) => ({ ...facts(of), per: windowText(of.limit.view), resetsAt: of.reset })),
    concurrency: places.map((of) => {
      const { used: inUse, ...rest } = facts(of);
      return { ...rest, inUse };
    }),
  };
}
