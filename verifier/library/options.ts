import { isIP } from 'node:net';
import {
  ConfigError,
  type ConfigOf,
  loadConfig,
  type Setting,
  type Settings,
} from '#shared/process/load-config.ts';
import type { Logger } from '#shared/process/log.ts';
import type { Presenter } from '#shared/rules/presenter.ts';
import { API_ID } from '#shared/rules/slugs.ts';
import {
  KEY_LENGTH_MAX,
  type Question,
  questionAbout,
  REQUIREMENT_OPTIONS,
  readOptions,
  readQuery,
  readRelease,
} from '../core/question.ts';
import type { AskedRateLimit, HostLogger, QuestionOptions } from './key-verifier.ts';

export {
  CREDITS,
  HELD_LIMITS_MAX,
  HOLD_MAX_MS,
  HOLD_MIN_MS,
  QUESTION_LIMITS_MAX,
} from '../core/question.ts';
export { ABORT_RULES, type AbortRule, costsAtEnd, type Ended } from '../metering/on-abort.ts';

type OptionsObject = Readonly<Record<string, unknown>>;

/** Returns the name of a setting in code: `cacheKeysMax` for CACHE_KEYS_MAX. */
export const camelCase = (name: string) =>
  name.toLowerCase().replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());

/**
 * Reads settings from options in code, with the same defaults, limits and units, under names in camel case.
 * Throws a TypeError that lists all faults, and never contains the value of a secret.
 * @param prefix prefix of the settings' names that the options' names lack
 * @param place name of the options object, for messages
 */
export function configFrom<S extends Settings>(
  settings: S,
  options: OptionsObject,
  { prefix = '', place = '' } = {},
): ConfigOf<S> {
  const texts: Record<string, string> = {};
  const faults: string[] = [];
  const settingsByOption: Record<string, Setting<unknown>> = {};
  const names = new Map<string, string>();
  for (const [name, setting] of Object.entries(settings)) {
    const option = camelCase(name.slice(prefix.length));
    settingsByOption[place + option] = setting;
    names.set(option, name);
    const value = options[option];
    if (value === undefined) continue;
    const kind = kindOf(setting);
    // An empty text would select the default.
    if (typeof value !== kind || value === '')
      faults.push(
        `${place}${option}: must be a ${kind}${kind === 'string' ? ' that is not empty' : ''} (${setting.rule})`,
      );
    else texts[place + option] = String(value);
  }
  for (const option of Object.keys(options))
    if (!names.has(option)) faults.push(`${place}${option}: unknown option`);
  try {
    const read = loadConfig(settingsByOption, texts);
    if (faults.length > 0) throw new ConfigError(faults);
    return Object.fromEntries(
      [...names].map(([option, name]) => [name, read[place + option]]),
    ) as ConfigOf<S>;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw wrongOptions([...new Set([...faults, ...error.faults])]);
  }
}

/** Returns the type of a setting's value in code. A value that the setting parses itself is a string. */
function kindOf({ parse, default: byDefault, secret }: Setting<unknown>): 'number' | 'boolean' | 'string' {
  const kind = secret || byDefault === undefined ? 'string' : typeof parse(byDefault);
  return kind === 'number' || kind === 'boolean' ? kind : 'string';
}

/** Returns an error that names every wrong option. */
export function wrongOptions(faults: readonly string[]): TypeError {
  return new TypeError(`wrong options:\n${faults.map((fault) => `  ${fault}`).join('\n')}`);
}

/** Throws a TypeError if `value` is not an object. */
export function optionsObject(value: unknown, place: string): OptionsObject {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw wrongOptions([`${place}: must be an object`]);
  return value as OptionsObject;
}

/** Returns the fault of an API's id; undefined = none. */
export function apiIdFault(apiId: unknown, place: string): string | undefined {
  return typeof apiId === 'string' && API_ID.test(apiId)
    ? undefined
    : `${place}: must match ${API_ID.source}`;
}

/** Returns the fault of a permission query; undefined = none. */
export function permissionsFault(query: unknown, place: string): string | undefined {
  const read = readQuery(query);
  return 'fault' in read ? `${place}: ${read.fault}` : undefined;
}

const LEVELS = ['debug', 'info', 'warn', 'error'] as const;

/** Creates the engine's logger, which writes to the application's logger, or nowhere without one. */
export function engineLog(host: HostLogger | undefined): Logger {
  const to = (level: (typeof LEVELS)[number]) => {
    return (fields: unknown, message?: unknown) => {
      if (typeof fields === 'string') host?.[level]({}, fields);
      else host?.[level](withoutCommands(fields), String(message ?? ''));
    };
  };
  const [debug, info, warn, error] = [to('debug'), to('info'), to('warn'), to('error')];
  return { trace: debug, debug, info, warn, error, fatal: error };
}

/** Returns the fault of an application's logger; undefined = none. */
export function logFault(log: unknown): string | undefined {
  const methods = Object(log) as Record<string, unknown>;
  return log === undefined || LEVELS.every((level) => typeof methods[level] === 'function')
    ? undefined
    : `log: must have the methods ${LEVELS.join(', ')}`;
}

/**
 * Returns the fields with each error as a plain object. Leaves out the Redis command that ioredis attaches to
 * an error: AUTH contains a password.
 */
function withoutCommands(fields: unknown): object {
  const entries = Object.entries(Object(fields) as object);
  return Object.fromEntries(
    entries.map(([name, value]) => [name, value instanceof Error ? errorFields(value) : value]),
  );
}

function errorFields({ name, message, stack, cause }: Error): object {
  return { name, message, stack, ...(cause instanceof Error ? { cause: errorFields(cause) } : {}) };
}

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
 * The question of one request at a guard, and its options at the same time. The client's address and the
 * origin are computed only if something needs them, because most keys may be used from everywhere.
 */
export class RequestQuestion<R> implements Question, Presenter {
  key = '';
  readonly apiId: string | undefined;
  readonly tags: readonly string[] | undefined;
  readonly requirements: Question['requirements'];
  readonly isRecheck: boolean;
  readonly allowedApis = undefined;
  readonly hold: Question['hold'];
  readonly #options: QuestionOptions | undefined;
  readonly #request: R;
  #clientIpOf: ((request: R) => string | undefined) | undefined;
  #clientIp: string | undefined = undefined;
  readonly #rawHeaders: readonly string[];
  readonly #originOf: (rawHeaders: readonly string[]) => string | undefined;

  /**
   * @param options options from `fixedOptions`
   * @param isHeld false = without the hold of the options, because nobody would end it
   */
  constructor(
    options: QuestionOptions | undefined,
    request: R,
    clientIpOf: (request: R) => string | undefined,
    rawHeaders: readonly string[],
    originOf: (rawHeaders: readonly string[]) => string | undefined,
    isHeld: boolean,
  ) {
    const { apiId, tags, requirements, isRecheck, hold } =
      options === undefined ? DEFAULT : (FixedOptions.readIn(options) ?? read(options));
    this.apiId = apiId;
    this.tags = tags;
    this.requirements = requirements;
    this.isRecheck = isRecheck;
    this.hold = isHeld ? hold : undefined;
    this.#options = options;
    this.#request = request;
    this.#clientIpOf = clientIpOf;
    this.#rawHeaders = rawHeaders;
    this.#originOf = originOf;
  }

  get presenter(): Presenter {
    return this;
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

  /** The request's `Origin`, or else its `Referer`. */
  get origin(): string | undefined {
    return this.#originOf(this.#rawHeaders);
  }

  get remaining() {
    const reserved = this.#options?.hold?.credits;
    return reserved === undefined ? this.#options?.remaining : { cost: reserved };
  }

  get ratelimits() {
    return this.#options?.ratelimits;
  }

  get permissions() {
    return this.#options?.permissions;
  }

  /** Amounts of rate limits that the hold reserves, which `hold` does not say here. */
  get reserved(): readonly AskedRateLimit[] {
    return this.hold?.names === undefined ? [] : (this.#options?.hold?.ratelimits ?? []);
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

/** Checks the arguments of a release. Throws a TypeError. */
export const checkedRelease = (hold: unknown, cost: unknown) =>
  readRelease(
    { hold, ...(typeof cost === 'object' ? { costs: cost } : { cost }) },
    (message) => new TypeError(message),
  );

function read(options: QuestionOptions): KeylessQuestion {
  // An `apiId` that is present but undefined is a mistake, and would accept the keys of any API.
  if ('apiId' in options && options.apiId === undefined)
    throw new TypeError(`apiId: must match ${API_ID.source}; leave it out for any API`);
  for (const name of REQUIREMENT_OPTIONS)
    if (name in options && options[name] === undefined)
      throw new TypeError(`${name}: must not be undefined; leave it out for none`);
  return readOptions(options, (message) => new TypeError(message));
}
