import { API_ID } from '#shared/api-id.ts';
import type { QuestionOptions } from './key-verifier.ts';

const KEY_LENGTH_MAX = 512;

/** Tells whether a text can be a key at all; what cannot is an unknown key, as verifyKey takes none such. */
export function mayBeKey(key: string): boolean {
  // A lone half of a surrogate pair would be hashed as another character.
  return key.length > 0 && key.length <= KEY_LENGTH_MAX && key.isWellFormed();
}

/** The API asked for. Throws TypeError where the question is wrong in itself, which is the caller's mistake. */
export function askedApi(key: unknown, options: QuestionOptions | undefined): string | undefined {
  if (typeof key !== 'string') throw new TypeError('key: must be a string');
  if (options === undefined) return undefined;
  if (typeof options !== 'object' || options === null) throw new TypeError('options: must be an object');
  for (const name in options) if (name !== 'apiId') throw new TypeError(`${name}: unknown option`);
  // One that is there and undefined is a mistake too, which would let the keys of any API pass.
  if (!('apiId' in options)) return undefined;
  const { apiId } = options;
  if (typeof apiId !== 'string' || !API_ID.test(apiId)) {
    throw new TypeError(`apiId: must match ${API_ID.source}; leave it out for any API`);
  }
  return apiId;
}
