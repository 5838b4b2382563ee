import { readFileSync } from 'node:fs';

/**
 * A setting of a process, read from the environment variable with its name. Written by hand, because the
 * routes' schema library would cost a sidecar 200 ms and 30 MB at every start.
 */
export interface Setting<T> {
  readonly parse: (text: string) => T;
  /** The default, as in the environment; undefined = required, `''` = off unless set. */
  readonly default: string | undefined;
  /** The allowed values, with the unit: `integer 1..100 ms`. */
  readonly rule: string;
  readonly help: string;
  /** True = a secret, which may also come from the file that `<NAME>_FILE` names, and is never shown. */
  readonly secret?: boolean;
}

/** The settings of a process, by the name of their environment variable. */
export type Settings = Readonly<Record<string, Setting<unknown>>>;
/** The values of such settings, parsed and checked. */
export type ConfigOf<S extends Settings> = {
  readonly [K in keyof S]: S[K] extends Setting<infer T> ? T : never;
};

/** The values of such settings, and of their secrets as the files have them later. */
export type LoadedConfig<S extends Settings> = ConfigOf<S> & {
  /**
   * Reads the files of secrets again: what was rotated meanwhile. A secret of the environment, or of a file that cannot be
   * read now, stays as it was.
   */
  readonly readSecretsAgain: () => Partial<ConfigOf<S>>;
};

/** EX_CONFIG of sysexits.h. */
const EXIT_CONFIG = 78;

/**
 * An error with all faults of a configuration. Its message names variables and rules, never the value of a
 * secret.
 */
export class ConfigError extends Error {
  readonly faults: readonly string[];
  constructor(faults: readonly string[]) {
    super(`wrong configuration:\n${faults.map((fault) => `  ${fault}`).join('\n')}`);
    this.name = 'ConfigError';
    this.faults = faults;
  }
}

/** Parses all settings. Throws a ConfigError with every fault. An empty variable counts as unset. */
export function loadConfig<S extends Settings>(settings: S, env: NodeJS.ProcessEnv): LoadedConfig<S> {
  const faults: string[] = [];
  const config: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(settings)) {
    try {
      const text = (setting.secret ? readSecret(name, env) : env[name]) || setting.default;
      if (text === undefined) throw new Error('required');
      config[name] = setting.parse(text);
    } catch (error) {
      faults.push(`${name}: ${(error as Error).message} (${setting.rule})`);
    }
  }
  if (faults.length > 0) throw new ConfigError(faults);
  const secrets: Record<string, unknown> = {};
  const readSecretsAgain = () => {
    for (const [name, setting] of Object.entries(settings)) {
      if (!setting.secret || !env[`${name}_FILE`]) continue;
      try {
        secrets[name] = setting.parse(readSecret(name, env) ?? '');
      } catch {
        // Somebody may be writing it.
      }
    }
    return { ...secrets };
  };
  return Object.freeze({ ...config, readSecretsAgain }) as LoadedConfig<S>;
}

/**
 * Loads the configuration from the environment. Throws a ConfigError with every fault.
 * @param check returns the faults of settings that do not fit together
 */
export function loadFromEnvironment<S extends Settings>(
  settings: S,
  check: (config: ConfigOf<S>) => readonly string[] = () => [],
): LoadedConfig<S> {
  const config = loadConfig(settings, process.env);
  const faults = check(config);
  if (faults.length > 0) throw new ConfigError(faults);
  return config;
}

/**
 * Loads the configuration, or prints every fault to standard error and exits with status 78.
 * @param check returns the faults of settings that do not fit together
 */
export function loadConfigOrExit<S extends Settings>(
  settings: S,
  check: (config: ConfigOf<S>) => readonly string[],
): LoadedConfig<S> {
  try {
    return loadFromEnvironment(settings, (config) => [...misspelt(settings, process.env), ...check(config)]);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(EXIT_CONFIG);
  }
}

/**
 * Returns a fault for each variable whose name is nearly that of a setting: the setting would keep its default, which
 * may allow more. Compares only long names, because the environment has other variables, too.
 */
export function misspelt(settings: Settings, env: NodeJS.ProcessEnv): string[] {
  const allNames = Object.entries(settings).flatMap(([name, { secret }]) =>
    secret ? [name, `${name}_FILE`] : [name],
  );
  const names = allNames.filter((name) => name.length >= LONG_NAME);
  return Object.keys(env).flatMap((variable) => {
    if (allNames.includes(variable)) return [];
    const nearest = names.find((name) => isNear(variable, name));
    return nearest === undefined ? [] : [`${variable}: is no setting; did you mean ${nearest}?`];
  });
}

const LONG_NAME = 8;

/** Returns true if one character added, left out or replaced makes one name the other, in any case. */
function isNear(variable: string, name: string): boolean {
  const [a, b] = [variable.toUpperCase(), name];
  if (Math.abs(a.length - b.length) > 1) return false;
  let start = 0;
  while (start < a.length && a[start] === b[start]) start++;
  const rest = (text: string, skipped: number) => text.slice(start + skipped);
  return [
    [0, 0],
    [1, 1],
    [1, 0],
    [0, 1],
  ].some(([i = 0, j = 0]) => rest(a, i) === rest(b, j));
}

/** A setting without its explanation, which the documentation shows. */
interface SettingWithoutHelp<T> {
  help(text: string): Setting<T>;
}

/** Creates a setting with a rule of its own. */
export const setting = <T>(setting: Omit<Setting<T>, 'help'>): SettingWithoutHelp<T> => ({
  help: (help) => ({ ...setting, help }),
});

/** Creates a setting with a whole number from `min` to `max`, in `unit`. */
export function integer(
  min: number,
  max: number,
  unit: string,
  byDefault: number,
): SettingWithoutHelp<number> {
  return setting({
    parse(text) {
      const value = Number(text);
      if (!/^-?\d+$/.test(text) || value < min || value > max) throw new Error(`"${text}" is not allowed`);
      return value;
    },
    default: String(byDefault),
    rule: `integer ${min}..${max}${unit ? ` ${unit}` : ''}`,
  });
}

/** Creates a setting with a port to listen on; 0 = any free port. */
export const port = (byDefault: number): Pick<SettingWithoutHelp<number>, 'help'> => ({
  help: (text) => integer(0, 65_535, '', byDefault).help(`${text}; 0 = any free one`),
});

/** Creates a setting with an address to listen at, which may be written as in a URL: `[::1]`. */
export const host = (): SettingWithoutHelp<string> =>
  setting({
    parse: (value) => value.replace(/^\[(.*)\]$/, '$1'),
    default: '127.0.0.1',
    rule: 'host name or address',
  });

/** Creates a setting with a text, any text where there is no pattern; required if it has no default. */
export function text(
  byDefault: string | undefined,
  pattern = /^/,
  rule = 'text',
): SettingWithoutHelp<string> {
  return setting({
    parse(value) {
      if (!pattern.test(value)) throw new Error(`"${value}" is not allowed`);
      return value;
    },
    default: byDefault,
    rule,
  });
}

/** Creates a setting with an http:// or https:// URL, which may have a path; unset = undefined. */
export function httpUrl(): SettingWithoutHelp<URL | undefined> {
  return setting({
    parse(value) {
      if (value === '') return undefined;
      const url = URL.canParse(value) ? new URL(value) : undefined;
      const fits = url !== undefined && /^https?:$/.test(url.protocol);
      // The message does not repeat the text, because it may contain a password.
      if (!fits || url.username || url.password || url.search || url.hash)
        throw new Error('is not a valid URL');
      return url;
    },
    default: '',
    rule: 'http:// or https:// URL without user, query or fragment',
  });
}

/** Creates a setting with `true` or `false`. */
export function flag(byDefault: boolean): SettingWithoutHelp<boolean> {
  return setting({
    parse: (value) => oneOf(['true', 'false'], value) === 'true',
    default: String(byDefault),
    rule: 'true or false',
  });
}

/** Creates a setting with one of `values`. */
export function choice<const T extends string>(values: readonly T[], byDefault: T): SettingWithoutHelp<T> {
  return setting({
    parse: (value) => oneOf(values, value),
    default: byDefault,
    rule: values.join(', '),
  });
}

function oneOf<T extends string>(values: readonly T[], text: string): T {
  const value = values.find((candidate) => candidate === text);
  if (value === undefined) throw new Error(`"${text}" is not allowed`);
  return value;
}

/** Creates a setting with comma-separated values that match `pattern`; an empty default is an empty list. */
export function list(pattern: RegExp, rule: string, byDefault = ''): SettingWithoutHelp<readonly string[]> {
  return setting({
    parse(value) {
      const items = value
        .split(',')
        .map((item) => item.trim())
        .filter(Boolean);
      const wrongItem = items.find((item) => !pattern.test(item));
      if (wrongItem !== undefined) throw new Error(`"${wrongItem}" is not allowed`);
      return [...new Set(items)];
    },
    default: byDefault,
    rule,
  });
}

/**
 * Creates a setting with a secret, which may also come from the file named by `<NAME>_FILE`. `parse` must not
 * put the text into its errors.
 */
export function secret<T = string>(
  byDefault: string | undefined,
  rule: string,
  parse: (text: string) => T = (text) => text as T,
): SettingWithoutHelp<T> {
  return setting({ parse, default: byDefault, rule, secret: true });
}

/**
 * Returns `NAME`, or the content of the file named by `NAME_FILE` without its last line break. Throws if both
 * are set.
 */
function readSecret(name: string, env: NodeJS.ProcessEnv): string | undefined {
  const value = env[name];
  const file = env[`${name}_FILE`];
  if (!file) return value;
  if (value) throw new Error(`must not be set together with ${name}_FILE`);
  try {
    return readFileSync(file, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    throw new Error(
      `${name}_FILE cannot be read: ${(error as NodeJS.ErrnoException).code ?? 'unknown error'}`,
    );
  }
}
