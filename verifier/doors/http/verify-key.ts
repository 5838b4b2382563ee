import { ApiError } from '#shared/rules/errors.ts';
import type { Callers } from '../../core/callers.ts';
import { unknownPart } from '../../core/form.ts';
import type { HoldEnder, RefusalLog, Release } from '../../core/ports.ts';
import { type Question, readQuestion, readQuestionV2, readRelease } from '../../core/question.ts';
import { answerOn, type Verdict, type VerdictSource } from '../../core/verdict.ts';
import { verdictBody, verdictBodyV2 } from '../../core/verdict-body.ts';
import { readJson } from './json-body.ts';
import { answerJson } from './respond.ts';
import type { Handler } from './server.ts';

/** A generation of verifyKey: the form of its questions and of its answers. */
interface Generation {
  /** Reads a body. Throws ApiError BAD_REQUEST that names the field and the rule, never the value. */
  readonly questionOf: (body: Record<string, unknown>) => Question;
  readonly verdictBody: (verdict: Verdict, requestId: string) => string;
}
/** Parts that every question about keys passes, where there are such. */
interface Asking {
  /** undefined = anybody may ask. */
  readonly callers?: Callers | undefined;
  /** undefined = nobody remembers refusals. */
  readonly refusals?: RefusalLog | undefined;
}

export const V1: Generation = { questionOf: (body) => readQuestion(body, badRequest), verdictBody };
export const V2: Generation = {
  questionOf: (body) => readQuestionV2(body, badRequest),
  verdictBody: verdictBodyV2,
};

/**
 * Returns the handler of POST /v1/keys.verifyKey or /v2/keys.verifyKey. It is the reference: `lane.ts`
 * must answer the common form of a request identically.
 */
export function verifyKeyRoute(
  { questionOf, verdictBody }: Generation,
  verifier: VerdictSource,
  bodyBytesMax: number,
  { callers, refusals }: Asking = {},
): Handler {
  return async (request, response, requestId) => {
    const { authorization } = request.headers;
    await callers?.admit(authorization, 'keys');
    const [parameter] = new URLSearchParams(request.url?.split('?')[1] ?? '').keys();
    if (parameter !== undefined) throw badRequest(unknownPart(parameter, 'query parameter'));
    const anybodys = questionOf(await readJson(request, response, bodyBytesMax));
    // The root key may have been disabled while the body arrived.
    const scope = await callers?.admit(authorization, 'keys');
    const question = scope ? { ...anybodys, allowedApis: scope.allowedApis } : anybodys;
    await answerOn(verifier, question, (verdict) => {
      if (!question.isRecheck) refusals?.note(verdict, question, { requestId });
      answerJson(response, 200, verdictBody(verdict, requestId));
    });
  };
}

/** Returns the handler of POST /v1/keys.release. `lane.ts` must answer the common form of a request identically. */
export function releaseRoute(
  holds: HoldEnder,
  bodyBytesMax: number,
  { callers }: Pick<Asking, 'callers'> = {},
): Handler {
  return async (request, response, requestId) => {
    const { authorization } = request.headers;
    await callers?.admit(authorization, 'keys');
    const { hold, costs } = releaseOf(await readJson(request, response, bodyBytesMax));
    // The root key may have been disabled while the body arrived.
    const scope = await callers?.admit(authorization, 'keys');
    answerJson(response, 200, releaseBody(await holds.release(hold, costs, scope?.allowedApis), requestId));
  };
}

/** Reads a body. Throws ApiError BAD_REQUEST that names the field and the rule, never the value. */
export const releaseOf = (body: Record<string, unknown>) => readRelease(body, badRequest);

/** Returns the body of the answer to a release. */
export const releaseBody = (release: Release, requestId: string): string =>
  JSON.stringify({ ...release, requestId });

const badRequest = (message: string) => new ApiError('BAD_REQUEST', message);
