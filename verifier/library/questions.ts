import { API_ID } from '#shared/api-id.ts';
import { DEFAULT_REQUIREMENTS, type Requirements } from '../core/question.ts';
import { requirementsOf } from '../core/requirements.ts';
import { readTags } from '../core/tags.ts';
import type { QuestionOptions } from './key-verifier.ts';

const KEY_LENGTH_MAX = 512;
const REQUIREMENTS = ['remaining', 'ratelimits', 'permissions'] as const;
const NAMES: ReadonlySet<string> = new Set(['apiId', 'tags', ...REQUIREMENTS]);

/** Tells whether a text can be a key at all; what cannot is an unknown key, as verifyKey takes none such. */
export function mayBeKey(key: string): boolean {
  // A lone half of a surrogate pair would be hashed as another character.
  return key.length > 0 && key.length <= KEY_LENGTH_MAX && key.isWellFormed();
}

/** The rest of a question, as the core takes it. */
export interface JudgedOptions {
  /** undefined = any. */
  readonly apiId: string | undefined;
  readonly tags: readonly string[] | undefined;
  readonly requirements: Requirements;
}

const NOTHING_MORE: JudgedOptions = Object.freeze({
  apiId: undefined,
  tags: undefined,
  requirements: DEFAULT_REQUIREMENTS,
});

/** Options that were judged once, for one who asks with the same ones each time. */
class FixedOptions {
  readonly #asked: JudgedOptions;

  constructor(options: QuestionOptions) {
    this.#asked = judged(options);
  }

  static askedIn(options: QuestionOptions): JudgedOptions | undefined {
    return #asked in options ? options.#asked : undefined;
  }
}

/** The same options, which nobody can change and which cost nothing to judge again. Throws TypeError where they are wrong. */
export function fixedOptions(options: QuestionOptions): QuestionOptions {
  return Object.freeze(Object.assign(new FixedOptions(options), options));
}

/** Judges what is asked about a key. Throws TypeError where the question is wrong in itself, which is the caller's mistake. */
export function askedAbout(key: unknown, options: QuestionOptions | undefined): JudgedOptions {
  if (typeof key !== 'string') throw new TypeError('key: must be a string');
  if (options === undefined) return NOTHING_MORE;
  if (typeof options !== 'object' || options === null) throw new TypeError('options: must be an object');
  return FixedOptions.askedIn(options) ?? judged(options);
}

function judged(options: QuestionOptions): JudgedOptions {
  for (const name in options) if (!NAMES.has(name)) throw new TypeError(`${name}: unknown option`);
  return { apiId: apiOf(options), tags: tagsOf(options), requirements: askedRequirements(options) };
}

function apiOf(options: QuestionOptions): string | undefined {
  // One that is there and undefined is a mistake too, which would let the keys of any API pass.
  if (!('apiId' in options)) return undefined;
  const { apiId } = options;
  if (typeof apiId !== 'string' || !API_ID.test(apiId))
    throw new TypeError(`apiId: must match ${API_ID.source}; leave it out for any API`);
  return apiId;
}

function askedRequirements(options: QuestionOptions): Requirements {
  for (const name of REQUIREMENTS)
    if (name in options && options[name] === undefined)
      throw new TypeError(`${name}: is undefined; leave it out for none`);
  return requirementsOf(options, (message) => new TypeError(message), 'option');
}

function tagsOf(options: QuestionOptions): readonly string[] | undefined {
  const read = readTags(options.tags);
  if ('fault' in read) throw new TypeError(read.fault);
  return read.tags;
}
