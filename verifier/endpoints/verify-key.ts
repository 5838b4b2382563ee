import { API_ID } from '#shared/api-id.ts';
import { ApiError } from '#shared/errors.ts';
import { type Verdict, verdictBody } from '../core/verdict.ts';
import { readJson } from '../http/json-body.ts';
import { answerJson } from '../http/respond.ts';
import type { Handler } from '../http/router.ts';

/** Decides on keys: `Verifier`, or anything like it. */
export interface Decider {
  /**
   * The verdict from memory; undefined = `lookUp` must be asked. Never waits.
   * @param isAgain whether it is about a request that was answered before: then it is counted nowhere
   * @param tags what it is counted by, besides the key
   */
  decide(key: string, askedApi?: string, isAgain?: boolean, tags?: readonly string[]): Verdict | undefined;
  /** Likewise by way of Redis. Rejects with ApiError SERVICE_UNAVAILABLE when no decision can be had. */
  lookUp(key: string, askedApi?: string, isAgain?: boolean, tags?: readonly string[]): Promise<Verdict>;
}

/** The content of a verifyKey request. */
export interface Question {
  readonly key: string;
  readonly apiId: string | undefined;
  readonly tags?: readonly string[] | undefined;
}

export const KEY_LENGTH_MAX = 512;
export const TAGS_MAX = 10;
/** Characters, of whatever length as UTF-8. */
export const TAG_LENGTH_MAX = 128;

/** POST /v1/keys.verifyKey, the reference; `fast-lane.ts` answers the common form of it the same way. */
export function verifyKeyRoute(answers: Decider, bodyBytesMax: number): Handler {
  return async (request, response, requestId) => {
    const [parameter] = new URLSearchParams(request.url?.split('?')[1] ?? '').keys();
    if (parameter !== undefined) throw unknown(parameter, 'query parameter');
    const { key, apiId, tags } = questionOf(await readJson(request, response, bodyBytesMax));
    const verdict =
      answers.decide(key, apiId, false, tags) ?? (await answers.lookUp(key, apiId, false, tags));
    answerJson(response, 200, verdictBody(verdict, requestId));
  };
}

/** Judges the fields of a body. Throws ApiError BAD_REQUEST naming the field and the rule, never the value. */
export function questionOf(body: Record<string, unknown>): Question {
  const stray = Object.keys(body).find((name) => !FIELDS.has(name));
  if (stray !== undefined) throw unknown(stray, 'field');
  const { key, apiId } = body;
  if (key === undefined) throw new ApiError('BAD_REQUEST', 'key: required');
  if (typeof key !== 'string') throw new ApiError('BAD_REQUEST', 'key: must be a string');
  if (key.length < 1 || key.length > KEY_LENGTH_MAX) {
    throw new ApiError('BAD_REQUEST', `key: must have 1 to ${KEY_LENGTH_MAX} characters`);
  }
  // A lone half of a surrogate pair would be hashed as another character.
  if (!key.isWellFormed()) throw new ApiError('BAD_REQUEST', 'key: must be Unicode text');
  const tags = tagsOf(body['tags']);
  if (apiId === undefined) return { key, apiId, tags };
  if (typeof apiId !== 'string') throw new ApiError('BAD_REQUEST', 'apiId: must be a string');
  if (!API_ID.test(apiId)) throw new ApiError('BAD_REQUEST', `apiId: must match ${API_ID.source}`);
  return { key, apiId, tags };
}

const FIELDS: ReadonlySet<string> = new Set(['key', 'apiId', 'tags']);

function tagsOf(given: unknown): readonly string[] | undefined {
  if (given === undefined) return undefined;
  if (!Array.isArray(given) || given.length > TAGS_MAX) {
    throw new ApiError('BAD_REQUEST', `tags: must be a list of at most ${TAGS_MAX}`);
  }
  return given.map((tag: unknown) => {
    if (typeof tag !== 'string') throw new ApiError('BAD_REQUEST', 'tags: must be strings');
    if (!tag.isWellFormed()) throw new ApiError('BAD_REQUEST', 'tags: must be Unicode text');
    const length = tag.length > 2 * TAG_LENGTH_MAX ? tag.length : [...tag].length;
    if (length < 1 || length > TAG_LENGTH_MAX) {
      throw new ApiError('BAD_REQUEST', `tags: must have 1 to ${TAG_LENGTH_MAX} characters each`);
    }
    return tag;
  });
}

const NAME_SHOWN_MAX = 64;

const unknown = (name: string, kind: string) =>
  new ApiError('BAD_REQUEST', `${name.slice(0, NAME_SHOWN_MAX)}: unknown ${kind}`);
