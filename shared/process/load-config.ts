import { readFileSync } from 'node:fs';

/**
 * One setting of a process, read from the environment variable of its name. Written by hand rather than with
 * the schema library of the routes because a sidecar pays for that library's 200 ms and 30 MB at every start.
 */
export interface Setting<T> {
  readonly parse: (text: string) => T;
  /** As one would write it in the environment; undefined = required, `''` = off unless set. */
  readonly default: string | undefined;
  /** The values that are allowed, with the unit: `integer 1..100 ms`. */
  readonly rule: string;
  readonly help: string;
  /** True where the default is right for everybody: it will be a constant. Documentation only names it. */
  readonly deprecated?: true;
  /** A secret may also come from the file that `<NAME>_FILE` names, and is never shown. */
  readonly secret?: boolean;
}

/** A process's settings by the name of their environment variable. */
export type Settings = Readonly<Record<string, Setting<unknown>>>;
/** The values of such settings, read and checked. */
export type ConfigOf<S extends Settings> = {
  readonly [K in keyof S]: S[K] extends Setting<infer T> ? T : never;
};

/** sysexits.h EX_CONFIG. */
const EXIT_CONFIG = 78;

/** Every fault of a configuration at once. Messages name variables and rules, never values of secrets. */
export class ConfigError extends Error {
  readonly faults: readonly string[];
  constructor(faults: readonly string[]) {
    super(`wrong configuration:\n${faults.map((fault) => `  ${fault}`).join('\n')}`);
    this.name = 'ConfigError';
    this.faults = faults;
  }
}

/** Reads all settings; throws one ConfigError with every fault. An empty variable counts as unset. */
export function loadConfig<S extends Settings>(settings: S, env: NodeJS.ProcessEnv): ConfigOf<S> {
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
  return Object.freeze(config) as ConfigOf<S>;
}

/**
 * Loads the configuration or prints every fault to standard error and exits with status 78.
 * @param check faults that no setting has by itself, but only together with another
 */
export function loadConfigOrExit<S extends Settings>(
  settings: S,
  check: (config: ConfigOf<S>) => readonly string[],
): ConfigOf<S> {
  try {
    const config = loadConfig(settings, process.env);
    const faults = check(config);
    if (faults.length > 0) throw new ConfigError(faults);
    return config;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(EXIT_CONFIG);
  }
}

/** Sentences that tell which deprecated settings this process was given. */
export function deprecations(settings: Settings): string[] {
  return Object.entries(settings).flatMap(([name, { deprecated, default: byDefault }]) =>
    deprecated && process.env[name]
      ? [`${name} is deprecated: its default, ${byDefault}, will be a constant. Please unset it`]
      : [],
  );
}

/** Completes a setting with its explanation, which the documentation shows. */
interface SettingWithoutHelp<T> {
  help(text: string): Setting<T>;
  /** The same of a setting that is deprecated. */
  deprecated(text: string): Setting<T>;
}

const withoutHelp = <T>(setting: Omit<Setting<T>, 'help'>): SettingWithoutHelp<T> => ({
  help: (help) => ({ ...setting, help }),
  deprecated: (help) => ({ ...setting, help, deprecated: true }),
});

/** A whole number from `min` to `max`, with its unit. */
export function integer(
  min: number,
  max: number,
  unit: string,
  byDefault: number,
): SettingWithoutHelp<number> {
  return withoutHelp({
    parse(text) {
      const value = Number(text);
      if (!/^-?\d+$/.test(text) || value < min || value > max) throw new Error(`"${text}" is not allowed`);
      return value;
    },
    default: String(byDefault),
    rule: `integer ${min}..${max}${unit ? ` ${unit}` : ''}`,
  });
}

/** A port to listen on; 0 = any free one. */
export const port = (byDefault: number): Pick<SettingWithoutHelp<number>, 'help'> => ({
  help: (text) => integer(0, 65_535, '', byDefault).help(`${text}; 0 = any free one`),
});

/** Any text; without a default it is required. */
export function text(byDefault: string | undefined): SettingWithoutHelp<string> {
  return withoutHelp({ parse: (value) => value, default: byDefault, rule: 'text' });
}

/** An http:// or https:// address, perhaps with a path to begin at; unset = undefined. */
export function httpUrl(): SettingWithoutHelp<URL | undefined> {
  return withoutHelp({
    parse(value) {
      if (value === '') return undefined;
      const url = URL.canParse(value) ? new URL(value) : undefined;
      const fits = url !== undefined && /^https?:$/.test(url.protocol);
      // The text is not repeated: it may hold a password.
      if (!fits || url.username || url.password || url.search || url.hash) throw new Error('not such a URL');
      return url;
    },
    default: '',
    rule: 'http:// or https:// URL without user, query or fragment',
  });
}

/** `true` or `false`. */
export function flag(byDefault: boolean): SettingWithoutHelp<boolean> {
  return withoutHelp({
    parse: (value) => oneOf(['true', 'false'], value) === 'true',
    default: String(byDefault),
    rule: 'true or false',
  });
}

/** One of `values`. */
export function choice<const T extends string>(values: readonly T[], byDefault: T): SettingWithoutHelp<T> {
  return withoutHelp({
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

/** Comma-separated values, each of `pattern`; an empty default is an empty list. */
export function list(pattern: RegExp, rule: string, byDefault = ''): SettingWithoutHelp<readonly string[]> {
  return withoutHelp({
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

/** A setting that may also come from the file named by `<NAME>_FILE`. `parse` must not put its text into errors. */
export function secret<T = string>(
  byDefault: string | undefined,
  rule: string,
  parse: (text: string) => T = (text) => text as T,
): SettingWithoutHelp<T> {
  return withoutHelp({ parse, default: byDefault, rule, secret: true });
}

/** `NAME`, or the content of the file named by `NAME_FILE` without its last line break; both at once is a fault. */
function readSecret(name: string, env: NodeJS.ProcessEnv): string | undefined {
  const value = env[name];
  const file = env[`${name}_FILE`];
  if (!file) return value;
  if (value) throw new Error(`set either it or ${name}_FILE, not both`);
  try {
    return readFileSync(file, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    throw new Error(
      `${name}_FILE cannot be read: ${(error as NodeJS.ErrnoException).code ?? 'unknown error'}`,
    );
  }
}
