import { DURATION_MAX_MS, DURATION_MIN_MS, LIMIT_MAX } from '#shared/protocol/records/limit.ts';
import { IDENTIFIER_MAX } from '#shared/protocol/records/namespace-record.ts';
import { ApiError } from '#shared/rules/errors.ts';
import type { Callers } from '../../core/callers.ts';
import { object, optional, type Read, required, textOf, unknownPart, wholeNumber } from '../../core/form.ts';
import type { RateLimitAnswer, RateLimiter } from '../../metering/rate-limits.ts';
import { readJson, readJsonList } from './json-body.ts';
import { answerJson } from './respond.ts';
import type { Handler } from './server.ts';

/** Maximum number of checks in one multiLimit. */
export const CHECKS_MAX = 50;

const CHECK = object({
  namespace: required(textOf(IDENTIFIER_MAX, 'A group of limits, which needs not be created.')),
  identifier: required(textOf(IDENTIFIER_MAX, 'Whose calls are counted: a user, an address, …')),
  limit: required(wholeNumber(1, LIMIT_MAX, 'The maximum total cost in a window; an override replaces it.')),
  duration: required(wholeNumber(DURATION_MIN_MS, DURATION_MAX_MS, 'Length of a window, in milliseconds.')),
  cost: optional(wholeNumber(0, LIMIT_MAX, 'What this call takes; 0 only looks.'), 1),
});

/** The schema of a check, for the OpenAPI document. */
export const RATE_LIMIT_SCHEMA = CHECK.schema;

/**
 * Returns the handlers of `POST /v2/ratelimit.limit` and `multiLimit`. A refused check is an answer with 200, as
 * clients of version 2 expect.
 * @param callers undefined = anybody may ask
 */
export function rateLimitRoutes(
  rateLimits: RateLimiter,
  bodyBytesMax: number,
  callers?: Callers,
): Readonly<Record<`/v2/ratelimit.${'limit' | 'multiLimit'}`, { readonly POST: Handler }>> {
  const limit: Handler = async (request, response, requestId) => {
    await callers?.admit(request.headers.authorization, 'limits');
    refuseParameters(request.url);
    const question = CHECK.read(await readJson(request, response, bodyBytesMax), '', READING);
    await callers?.admit(request.headers.authorization, 'limits');
    const { passed, ...answer } = publicAnswer(await rateLimits.check(question));
    answerJson(response, 200, JSON.stringify({ meta: { requestId }, data: { success: passed, ...answer } }));
  };
  const multiLimit: Handler = async (request, response, requestId) => {
    await callers?.admit(request.headers.authorization, 'limits');
    refuseParameters(request.url);
    const questions = questionsOf(await readJsonList(request, response, bodyBytesMax));
    await callers?.admit(request.headers.authorization, 'limits');
    const answers = await Promise.all(questions.map((question) => rateLimits.check(question)));
    const limits = answers.map((answer, i) => ({
      ...{ namespace: questions[i]?.namespace, identifier: questions[i]?.identifier },
      ...publicAnswer(answer),
    }));
    const data = { passed: answers.every(({ passed }) => passed), limits };
    answerJson(response, 200, JSON.stringify({ meta: { requestId }, data }));
  };
  return { '/v2/ratelimit.limit': { POST: limit }, '/v2/ratelimit.multiLimit': { POST: multiLimit } };
}

function questionsOf(body: readonly unknown[]): Read<typeof CHECK>[] {
  if (body.length === 0 || body.length > CHECKS_MAX)
    throw badRequest(`body: must be a list of 1 to ${CHECKS_MAX} checks`);
  return body.map((check, i) => CHECK.read(check, String(i), READING));
}

/** Leaves out the override if there is none. */
const publicAnswer = ({ overrideId, ...answer }: RateLimitAnswer) => ({
  ...answer,
  ...(overrideId === undefined ? {} : { overrideId }),
});

function refuseParameters(url = ''): void {
  const [parameter] = new URLSearchParams(url.split('?')[1] ?? '').keys();
  if (parameter !== undefined) throw badRequest(unknownPart(parameter, 'query parameter'));
}

const badRequest = (message: string) => new ApiError('BAD_REQUEST', message);
const READING = { kind: 'field', refuse: badRequest } as const;
