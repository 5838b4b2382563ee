import { API_ID } from '#shared/api-id.ts';
import { CREDITS_MAX } from '#shared/credits.ts';
import { ApiError } from '#shared/errors.ts';
import { readTags } from '../core/tags.ts';
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
   * @param cost credits that the request costs, where the key has credits; 1 where nothing is said
   */
  decide(
    key: string,
    askedApi?: string,
    isAgain?: boolean,
    tags?: readonly string[],
    cost?: number,
  ): Verdict | undefined;
  /** Likewise by way of Redis. Rejects with ApiError SERVICE_UNAVAILABLE when no decision can be had. */
  lookUp(
    key: string,
    askedApi?: string,
    isAgain?: boolean,
    tags?: readonly string[],
    cost?: number,
  ): Promise<Verdict>;
}

/** The content of a verifyKey request. */
export interface Question {
  readonly key: string;
  readonly apiId: string | undefined;
  readonly tags?: readonly string[] | undefined;
  /** Credits that the request costs, where the key has credits; 1 where nothing is said. */
  readonly cost?: number;
}

export const KEY_LENGTH_MAX = 512;

/** POST /v1/keys.verifyKey, the reference; `fast-lane.ts` answers the common form of it the same way. */
export function verifyKeyRoute(answers: Decider, bodyBytesMax: number): Handler {
  return async (request, response, requestId) => {
    const [parameter] = new URLSearchParams(request.url?.split('?')[1] ?? '').keys();
    if (parameter !== undefined) throw unknown(parameter, 'query parameter');
    const { key, apiId, tags, cost } = questionOf(await readJson(request, response, bodyBytesMax));
    const verdict =
      answers.decide(key, apiId, false, tags, cost) ?? (await answers.lookUp(key, apiId, false, tags, cost));
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
  const read = readTags(body['tags']);
  if ('fault' in read) throw new ApiError('BAD_REQUEST', read.fault);
  const { tags } = read;
  const cost = costOf(body['remaining']);
  if (apiId === undefined) return { key, apiId, tags, cost };
  if (typeof apiId !== 'string') throw new ApiError('BAD_REQUEST', 'apiId: must be a string');
  if (!API_ID.test(apiId)) throw new ApiError('BAD_REQUEST', `apiId: must match ${API_ID.source}`);
  return { key, apiId, tags, cost };
}

const FIELDS: ReadonlySet<string> = new Set(['key', 'apiId', 'tags', 'remaining']);

function costOf(remaining: unknown): number {
  if (remaining === undefined) return 1;
  if (typeof remaining !== 'object' || remaining === null || Array.isArray(remaining)) {
    throw new ApiError('BAD_REQUEST', 'remaining: must be an object');
  }
  const { cost = 1, ...others } = remaining as Record<string, unknown>;
  const [stray] = Object.keys(others);
  if (stray !== undefined) throw unknown(`remaining.${stray}`, 'field');
  if (typeof cost !== 'number' || !Number.isInteger(cost) || cost < 0 || cost > CREDITS_MAX) {
    throw new ApiError('BAD_REQUEST', `remaining.cost: must be a whole number from 0 to ${CREDITS_MAX}`);
  }
  return cost;
}

const NAME_SHOWN_MAX = 64;

const unknown = (name: string, kind: string) =>
  new ApiError('BAD_REQUEST', `${name.slice(0, NAME_SHOWN_MAX)}: unknown ${kind}`);
