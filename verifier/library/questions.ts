import { isIP } from 'node:net';
import { API_ID } from '#shared/contract/api-id.ts';
import { KEY_LENGTH_MAX, type Question, readOptions } from '../core/question/question.ts';
import { REQUIREMENT_OPTIONS } from '../core/question/requirements.ts';
import type { QuestionOptions } from './key-verifier.ts';

/** Returns true if a text may be a secret. Any other text is an unknown key, because verifyKey refuses it. */
export function mayBeKey(key: string): boolean {
  // A lone half of a surrogate pair would have the same hash as another character.
  return key.length > 0 && key.length <= KEY_LENGTH_MAX && key.isWellFormed();
}

/** A question without its key. */
export type KeylessQuestion = Omit<Question, 'key'>;

const DEFAULT: KeylessQuestion = Object.freeze(read({}));

/** Options that were parsed once, for a caller who uses the same options for every question. */
class FixedOptions {
  readonly #read: KeylessQuestion;

  constructor(read: KeylessQuestion) {
    this.#read = read;
  }

  static readIn(options: QuestionOptions): KeylessQuestion | undefined {
    return #read in options ? options.#read : undefined;
  }
}

/**
 * Returns a frozen copy of the options that is not parsed again. Throws a TypeError if the options are wrong.
 * @param isRecheck true if the questions are about a request that already got a verdict
 */
export function fixedOptions(options: QuestionOptions, isRecheck = false): QuestionOptions {
  return Object.freeze(Object.assign(new FixedOptions({ ...read(options), isRecheck }), options));
}

/**
 * Returns options with the client's address. An address in another form is unknown: keys that need one are refused.
 */
export function withClientIp(
  options: QuestionOptions | undefined,
  clientIp: string | undefined,
): QuestionOptions | undefined {
  if (clientIp === undefined || isIP(clientIp) === 0) return options;
  const present = options === undefined ? DEFAULT : FixedOptions.readIn(options);
  const own = { ...options, clientIp };
  return present === undefined ? own : Object.assign(new FixedOptions({ ...present, clientIp }), own);
}

/**
 * Parses the options of a question. Throws a TypeError if the question is wrong in itself, which is the
 * caller's mistake.
 */
export function readQuestionOptions(key: unknown, options: QuestionOptions | undefined): KeylessQuestion {
  if (typeof key !== 'string') throw new TypeError('key: must be a string');
  if (options === undefined) return DEFAULT;
  if (typeof options !== 'object' || options === null) throw new TypeError('options: must be an object');
  return FixedOptions.readIn(options) ?? read(options);
}

function read(options: QuestionOptions): KeylessQuestion {
  // An `apiId` that is present but undefined is a mistake, and would accept the keys of any API.
  if ('apiId' in options && options.apiId === undefined)
    throw new TypeError(`apiId: must match ${API_ID.source}; leave it out for any API`);
  for (const name of REQUIREMENT_OPTIONS)
    if (name in options && options[name] === undefined)
      throw new TypeError(`${name}: must not be undefined; leave it out for none`);
  return readOptions(options, (message) => new TypeError(message));
}
