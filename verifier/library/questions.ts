import { API_ID } from '#shared/contract/api-id.ts';
import { KEY_LENGTH_MAX, type Question, readOptions } from '../core/question/question.ts';
import { REQUIREMENT_OPTIONS } from '../core/question/requirements.ts';
import type { QuestionOptions } from './key-verifier.ts';

/** Tells whether a text can be a key at all; what cannot is an unknown key, as verifyKey takes none such. */
export function mayBeKey(key: string): boolean {
  // A lone half of a surrogate pair would be hashed as another character.
  return key.length > 0 && key.length <= KEY_LENGTH_MAX && key.isWellFormed();
}

/** A question but for its key. */
export type KeylessQuestion = Omit<Question, 'key'>;

const DEFAULT: KeylessQuestion = Object.freeze(read({}));

/** Options that were read once, for one who asks with the same ones each time. */
class FixedOptions {
  readonly #read: KeylessQuestion;

  constructor(options: QuestionOptions, isRecheck: boolean) {
    this.#read = { ...read(options), isRecheck };
  }

  static readIn(options: QuestionOptions): KeylessQuestion | undefined {
    return #read in options ? options.#read : undefined;
  }
}

/**
 * The same options, which nobody can change and which cost nothing to read again. Throws TypeError where they are wrong.
 * @param isRecheck whether they ask about a request that was answered before, as far as a verifier knows the difference
 */
export function fixedOptions(options: QuestionOptions, isRecheck = false): QuestionOptions {
  return Object.freeze(Object.assign(new FixedOptions(options, isRecheck), options));
}

/** Reads what is asked about a key. Throws TypeError where the question is wrong in itself, which is the caller's mistake. */
export function readQuestionOptions(key: unknown, options: QuestionOptions | undefined): KeylessQuestion {
  if (typeof key !== 'string') throw new TypeError('key: must be a string');
  if (options === undefined) return DEFAULT;
  if (typeof options !== 'object' || options === null) throw new TypeError('options: must be an object');
  return FixedOptions.readIn(options) ?? read(options);
}

function read(options: QuestionOptions): KeylessQuestion {
  // One that is there and undefined is a mistake, which would let the keys of any API pass.
  if ('apiId' in options && options.apiId === undefined)
    throw new TypeError(`apiId: must match ${API_ID.source}; leave it out for any API`);
  for (const name of REQUIREMENT_OPTIONS)
    if (name in options && options[name] === undefined)
      throw new TypeError(`${name}: is undefined; leave it out for none`);
  return readOptions(options, (message) => new TypeError(message));
}
