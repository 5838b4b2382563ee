import { isIP } from 'node:net';
import { API_ID } from '#shared/contract/api-id.ts';
import {
  KEY_LENGTH_MAX,
  type Question,
  questionAbout,
  REQUIREMENT_OPTIONS,
  readOptions,
} from '../core/question.ts';
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
 * The question of one request at a guard, and its options at the same time. The client's address is computed
 * only if something needs it, because most keys may be used from everywhere.
 */
export class RequestQuestion<R> implements Question {
  key = '';
  readonly apiId: string | undefined;
  readonly tags: readonly string[] | undefined;
  readonly requirements: Question['requirements'];
  readonly isRecheck: boolean;
  readonly allowedApis = undefined;
  readonly #options: QuestionOptions | undefined;
  readonly #request: R;
  #clientIpOf: ((request: R) => string | undefined) | undefined;
  #clientIp: string | undefined = undefined;

  /** @param options options from `fixedOptions` */
  constructor(
    options: QuestionOptions | undefined,
    request: R,
    clientIpOf: (request: R) => string | undefined,
  ) {
    const { apiId, tags, requirements, isRecheck } =
      options === undefined ? DEFAULT : (FixedOptions.readIn(options) ?? read(options));
    this.apiId = apiId;
    this.tags = tags;
    this.requirements = requirements;
    this.isRecheck = isRecheck;
    this.#options = options;
    this.#request = request;
    this.#clientIpOf = clientIpOf;
  }

  /** The client's address. An address in another form is unknown: keys that need one are refused. */
  get clientIp(): string | undefined {
    if (this.#clientIpOf !== undefined) {
      const clientIp = this.#clientIpOf(this.#request);
      this.#clientIp = clientIp !== undefined && isIP(clientIp) !== 0 ? clientIp : undefined;
      this.#clientIpOf = undefined;
    }
    return this.#clientIp;
  }

  get remaining() {
    return this.#options?.remaining;
  }

  get ratelimits() {
    return this.#options?.ratelimits;
  }

  get permissions() {
    return this.#options?.permissions;
  }

  /** Returns the same in the form that a verifier takes. */
  asOptions(): QuestionOptions {
    return this as object as QuestionOptions;
  }
}

/** Returns the question about a key. A request's own question becomes the question about its key. */
export function questionOf(key: string, rest: KeylessQuestion): Question {
  if (!(rest instanceof RequestQuestion)) return questionAbout(key, rest);
  rest.key = key;
  return rest;
}

/**
 * Parses the options of a question. Throws a TypeError if the question is wrong in itself, which is the
 * caller's mistake.
 */
export function readQuestionOptions(key: unknown, options: QuestionOptions | undefined): KeylessQuestion {
  if (typeof key !== 'string') throw new TypeError('key: must be a string');
  if (options === undefined) return DEFAULT;
  if (typeof options !== 'object' || options === null) throw new TypeError('options: must be an object');
  if (options instanceof RequestQuestion) return options;
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
