import { API_ID } from '#shared/api-id.ts';
import { ApiError } from '#shared/errors.ts';
import type { Terms } from '../core/allowances/allowance.ts';
import { readTags } from '../core/tags.ts';
import { termsOf, unknownPart } from '../core/terms.ts';
import { type Verdict, verdictBody } from '../core/verdict.ts';
import { readJson } from '../http/json-body.ts';
import { answerJson } from '../http/respond.ts';
import type { Handler } from '../http/router.ts';

/** Decides on keys: `Verifier`, or anything like it. */
export interface Decider {
  /**
   * The verdict from memory; undefined = `lookUp` must be asked. Never waits.
   * @param isAgain whether it is about a request that was answered before: then it is counted nowhere, and costs nothing
   * @param tags what it is counted by, besides the key
   * @param terms what the request takes of the key's credits and rate limits, and what permissions it needs; the ordinary ones where nothing is said
   */
  decide(
    key: string,
    askedApi?: string,
    isAgain?: boolean,
    tags?: readonly string[],
    terms?: Terms,
  ): Verdict | undefined;
  /** Likewise by way of Redis. Rejects with ApiError SERVICE_UNAVAILABLE when no decision can be had. */
  lookUp(
    key: string,
    askedApi?: string,
    isAgain?: boolean,
    tags?: readonly string[],
    terms?: Terms,
  ): Promise<Verdict>;
}

/** The content of a verifyKey request. */
export interface Question {
  readonly key: string;
  readonly apiId: string | undefined;
  readonly tags?: readonly string[] | undefined;
  /** The ordinary ones where nothing is said. */
  readonly terms?: Terms | undefined;
}

export const KEY_LENGTH_MAX = 512;

/** POST /v1/keys.verifyKey, the reference; `fast-lane.ts` answers the common form of it the same way. */
export function verifyKeyRoute(answers: Decider, bodyBytesMax: number): Handler {
  return async (request, response, requestId) => {
    const [parameter] = new URLSearchParams(request.url?.split('?')[1] ?? '').keys();
    if (parameter !== undefined) throw badRequest(unknownPart(parameter, 'query parameter'));
    const { key, apiId, tags, terms } = questionOf(await readJson(request, response, bodyBytesMax));
    const verdict =
      answers.decide(key, apiId, false, tags, terms) ??
      (await answers.lookUp(key, apiId, false, tags, terms));
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
  const terms = termsOf(body, badRequest, 'field');
  if (apiId === undefined) return { key, apiId, tags, terms };
  if (typeof apiId !== 'string') throw badRequest('apiId: must be a string');
  if (!API_ID.test(apiId)) throw badRequest(`apiId: must match ${API_ID.source}`);
  return { key, apiId, tags, terms };
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
