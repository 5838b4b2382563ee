import { API_ID } from '#shared/api-id.ts';
import { ApiError } from '#shared/errors.ts';
import type { Question } from '../core/question.ts';
import { requirementsOf, unknownPart } from '../core/requirements.ts';
import { readTags } from '../core/tags.ts';
import { type Decider, verdictBody } from '../core/verdict.ts';
import { readJson } from '../http/json-body.ts';
import { answerJson } from '../http/respond.ts';
import type { Handler } from '../http/router.ts';

export const KEY_LENGTH_MAX = 512;

/** POST /v1/keys.verifyKey, the reference; `fast-lane.ts` answers the common form of it the same way. */
export function verifyKeyRoute(answers: Decider, bodyBytesMax: number): Handler {
  return async (request, response, requestId) => {
    const [parameter] = new URLSearchParams(request.url?.split('?')[1] ?? '').keys();
    if (parameter !== undefined) throw badRequest(unknownPart(parameter, 'query parameter'));
    const question = questionOf(await readJson(request, response, bodyBytesMax));
    const verdict = answers.decide(question) ?? (await answers.lookUp(question));
    answerJson(response, 200, verdictBody(verdict, requestId));
  };
}

/** Judges the fields of a body. Throws ApiError BAD_REQUEST naming the field and the rule, never the value. */
export function questionOf(body: Record<string, unknown>): Question {
  const stray = Object.keys(body).find((name) => !FIELDS.has(name));
  if (stray !== undefined) throw badRequest(unknownPart(stray, 'field'));
  const { key, apiId } = body;
  if (key === undefined) throw badRequest('key: required');
  if (typeof key !== 'string') throw badRequest('key: must be a string');
  if (key.length < 1 || key.length > KEY_LENGTH_MAX) {
    throw badRequest(`key: must have 1 to ${KEY_LENGTH_MAX} characters`);
  }
  // A lone half of a surrogate pair would be hashed as another character.
  if (!key.isWellFormed()) throw badRequest('key: must be Unicode text');
  const read = readTags(body['tags']);
  if ('fault' in read) throw badRequest(read.fault);
  const { tags } = read;
  const requirements = requirementsOf(body, badRequest, 'field');
  if (apiId !== undefined && typeof apiId !== 'string') throw badRequest('apiId: must be a string');
  if (apiId !== undefined && !API_ID.test(apiId)) throw badRequest(`apiId: must match ${API_ID.source}`);
  return { key, apiId, tags, requirements, isRecheck: false };
}

const FIELDS: ReadonlySet<string> = new Set([
  'key',
  'apiId',
  'tags',
  'remaining',
  'ratelimits',
  'authorization',
]);

const badRequest = (message: string) => new ApiError('BAD_REQUEST', message);
