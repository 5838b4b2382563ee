import { API_ID } from '#shared/contract/api-id.ts';
import {
  ConfigError,
  type ConfigOf,
  loadConfig,
  type Setting,
  type Settings,
} from '#shared/process/load-config.ts';
import { readQuery } from '../core/question.ts';

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
