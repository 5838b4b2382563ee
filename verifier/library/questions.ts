import { API_ID } from '#shared/api-id.ts';
import { ORDINARY, type Terms } from '../core/allowance.ts';
import { readTags } from '../core/tags.ts';
import { termsOf } from '../core/terms.ts';
import type { QuestionOptions } from './key-verifier.ts';

const KEY_LENGTH_MAX = 512;
const TERMS = ['remaining', 'ratelimits', 'permissions'] as const;
const NAMES: ReadonlySet<string> = new Set(['apiId', 'tags', ...TERMS]);

/** Tells whether a text can be a key at all; what cannot is an unknown key, as verifyKey takes none such. */
export function mayBeKey(key: string): boolean {
  // A lone half of a surrogate pair would be hashed as another character.
  return key.length > 0 && key.length <= KEY_LENGTH_MAX && key.isWellFormed();
}

/** The options that were judged last and that nobody can change: a guard asks with the same ones each time. */
let judged: { readonly options: object; readonly apiId: string } | undefined;

/** The API asked for. Throws TypeError where the question is wrong in itself, which is the caller's mistake. */
export function askedApi(key: unknown, options: QuestionOptions | undefined): string | undefined {
  if (typeof key !== 'string') throw new TypeError('key: must be a string');
  if (options === undefined) return undefined;
  if (options === judged?.options) return judged.apiId;
  if (typeof options !== 'object' || options === null) throw new TypeError('options: must be an object');
  for (const name in options) if (!NAMES.has(name)) throw new TypeError(`${name}: unknown option`);
  // One that is there and undefined is a mistake too, which would let the keys of any API pass.
  if (!('apiId' in options)) return undefined;
  const { apiId } = options;
  if (typeof apiId !== 'string' || !API_ID.test(apiId)) {
    throw new TypeError(`apiId: must match ${API_ID.source}; leave it out for any API`);
  }
  if (Object.isFrozen(options)) judged = { options, apiId };
  return apiId;
}

/** The terms of the request. Throws TypeError where the question is wrong in itself. */
export function askedTerms(options: QuestionOptions | undefined): Terms {
  if (options === undefined) return ORDINARY;
  for (const name of TERMS)
    if (name in options && options[name] === undefined)
      throw new TypeError(`${name}: is undefined; leave it out for none`);
  return termsOf(options, (message) => new TypeError(message), 'option');
}

/** The tags to count by. Throws TypeError where they are none. */
export function askedTags(options: QuestionOptions | undefined): readonly string[] | undefined {
  if (options?.tags === undefined) return undefined;
  const read = readTags(options.tags);
  if ('fault' in read) throw new TypeError(read.fault);
  return read.tags;
}
