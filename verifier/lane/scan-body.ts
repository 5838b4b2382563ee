import { isIP } from 'node:net';
import { LRUCache } from 'lru-cache';
import { API_ID } from '#shared/contract/api-id.ts';
import { DEFAULT_REQUIREMENTS, KEY_LENGTH_MAX, type Question, type Requirements } from '../core/question.ts';
import { parseJson } from '../http/json-body.ts';
import { bytesOf, follows, SPACE } from './head.ts';
import type { LaneRequest } from './lane-request.ts';
import type { Replies } from './reply.ts';

/** A generation of verifyKey, for reading. */
interface Generation {
  /** Beginning of a request. */
  readonly line: Buffer;
  /** True if a body may name the API to which the key must belong. */
  readonly takesApi: boolean;
  readonly questionOf: (body: Record<string, unknown>) => Question;
  readonly replies: Replies;
  /**
   * Caches the requirements by the text of the body after the key, because an API asks the same few questions
   * about all its keys.
   */
  readonly ends: LRUCache<string, Requirements>;
}

export const generationOf = (
  name: 'v1' | 'v2',
  questionOf: Generation['questionOf'],
  replies: Replies,
): Generation => ({
  line: Buffer.from(`POST /${name}/keys.verifyKey HTTP/1.`),
  takesApi: name === 'v1',
  ...{ questionOf, replies },
  ends: new LRUCache({ max: 1000 }),
});

const [QUOTE, COMMA, CLOSE] = [34, 44, 125] as const;

/** Characters that need no escape in a JSON string. */
const PLAIN = bytesOf(/[ !#-[\]-~]/);

const FIELD_KEY = Buffer.from('"key":');
const FIELD_API_ID = Buffer.from('"apiId":');
const FIELD_CLIENT_IP = Buffer.from('"clientIp":');
const OPEN = Buffer.from('{');

/** Longest end of a body that is cached. */
const END_LENGTH_MAX = 1024;

/** A placeholder key: the rest of a body means the same after any key. */
const OTHER_KEY = 'x';
const BEFORE_END = Buffer.from(`{"key":"${OTHER_KEY}",`);

/** Parses any other body that the reference accepts, as the reference does. */
export function parseBody(body: Buffer, { questionOf }: Generation, request: LaneRequest): boolean {
  try {
    const { key, apiId, clientIp, tags, requirements, isRecheck } = questionOf(parseJson(body));
    if (tags !== undefined || isRecheck) return false;
    request.key = key;
    request.apiId = apiId;
    request.clientIp = clientIp;
    request.requirements = requirements;
    return true;
  } catch {
    return false;
  }
}

/**
 * Scans a body in the form of `JSON.stringify`, or with single spaces between its parts: without escapes,
 * ASCII only.
 */
export function scanBody(
  bytes: Buffer,
  at: number,
  end: number,
  generation: Generation,
  request: LaneRequest,
): boolean {
  if (!follows(bytes, at, OPEN)) return false;
  request.key = '';
  request.apiId = undefined;
  request.clientIp = undefined;
  request.requirements = DEFAULT_REQUIREMENTS;
  for (let i = at + 1; ; i++) {
    const isKey = follows(bytes, i, FIELD_KEY);
    const isApi = !isKey && generation.takesApi && follows(bytes, i, FIELD_API_ID);
    if (!isKey && !isApi && !follows(bytes, i, FIELD_CLIENT_IP)) {
      const requirements =
        request.key === '' || bytes[i] !== QUOTE ? undefined : requirementsAt(bytes, i, end, generation);
      if (requirements !== undefined) request.requirements = requirements;
      return requirements !== undefined;
    }
    i += isKey ? FIELD_KEY.length : isApi ? FIELD_API_ID.length : FIELD_CLIENT_IP.length;
    if (bytes[i] === SPACE) i++;
    if (bytes[i++] !== QUOTE) return false;
    const value = i;
    while (PLAIN[bytes[i] as number] === 1) i++;
    if (bytes[i] !== QUOTE) return false;
    // The reference handles a repeated field, a key of the wrong length, and other invalid values.
    if (isKey) {
      if (request.key !== '' || i === value || i - value > KEY_LENGTH_MAX) return false;
      request.key = bytes.toString('latin1', value, i);
    } else if (isApi) {
      const apiId = bytes.toString('latin1', value, i);
      if (request.apiId !== undefined || !API_ID.test(apiId)) return false;
      request.apiId = apiId;
    } else {
      const clientIp = bytes.toString('latin1', value, i);
      if (request.clientIp !== undefined || isIP(clientIp) === 0) return false;
      request.clientIp = clientIp;
    }
    i++;
    if (bytes[i] === CLOSE) return i + 1 === end && request.key !== '';
    if (bytes[i] !== COMMA) return false;
    if (bytes[i + 1] === SPACE) i++;
  }
}

/**
 * Returns the requirements in the rest of a body, as the reference reads them; undefined if the rest contains
 * anything else.
 */
function requirementsAt(
  bytes: Buffer,
  at: number,
  end: number,
  { ends, questionOf }: Generation,
): Requirements | undefined {
  if (end - at > END_LENGTH_MAX) return undefined;
  const text = bytes.toString('latin1', at, end);
  const present = ends.get(text);
  if (present) return present;
  try {
    const body = Buffer.concat([BEFORE_END, bytes.subarray(at, end)]);
    const { key, apiId, clientIp, tags, requirements, isRecheck } = questionOf(parseJson(body));
    if (key !== OTHER_KEY || apiId !== undefined || clientIp !== undefined || tags !== undefined)
      return undefined;
    if (isRecheck) return undefined;
    ends.set(text, requirements);
    return requirements;
  } catch {
    return undefined;
  }
}
