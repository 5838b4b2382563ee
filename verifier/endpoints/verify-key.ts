import { ApiError } from '#shared/contract/errors.ts';
import { unknownPart } from '../core/question/form.ts';
import { type Question, readQuestion } from '../core/question/question.ts';
import type { VerdictSource } from '../core/verdict/verdict.ts';
import { verdictBody } from '../core/verdict/verdict-body.ts';
import { readJson } from '../http/json-body.ts';
import { answerJson } from '../http/respond.ts';
import type { Handler } from '../http/router.ts';

/** POST /v1/keys.verifyKey, the reference; `fast-lane.ts` answers the common form of it the same way. */
export function verifyKeyRoute(verifier: VerdictSource, bodyBytesMax: number): Handler {
  return async (request, response, requestId) => {
    const [parameter] = new URLSearchParams(request.url?.split('?')[1] ?? '').keys();
    if (parameter !== undefined) throw badRequest(unknownPart(parameter, 'query parameter'));
    const question = questionOf(await readJson(request, response, bodyBytesMax));
    const verdict = verifier.decide(question) ?? (await verifier.lookUp(question));
    answerJson(response, 200, verdictBody(verdict, requestId));
  };
}

/** Reads a body. Throws ApiError BAD_REQUEST naming the field and the rule, never the value. */
export const questionOf = (body: Record<string, unknown>): Question => readQuestion(body, badRequest);

const badRequest = (message: string) => new ApiError('BAD_REQUEST', message);
