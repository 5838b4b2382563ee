import { API_ID } from '#shared/contract/api-id.ts';
import {
  ConfigError,
  type ConfigOf,
  loadConfig,
  type Setting,
  type Settings,
} from '#shared/process/load-config.ts';
import { readQuery } from '../core/permissions.ts';

type OptionsObject = Readonly<Record<string, unknown>>;

/** The name of a setting in code: `cacheKeysMax` of CACHE_KEYS_MAX. */
export const camelCase = (name: string) =>
  name.toLowerCase().replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());

/**
 * Reads settings from options in code: the same defaults, limits and units, under names in camel case. Throws TypeError with
 * every fault; never a value of a secret.
 * @param prefix of the settings' names, which the options' lack
 * @param place what the options are called, for messages
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
    // An empty text would stand for the default.
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

/** The kind of value that a setting is in code; texts are what is parsed by a rule of its own. */
function kindOf({ parse, default: byDefault, secret }: Setting<unknown>): 'number' | 'boolean' | 'string' {
  const kind = secret || byDefault === undefined ? 'string' : typeof parse(byDefault);
  return kind === 'number' || kind === 'boolean' ? kind : 'string';
}

/** An error that names every wrong option. */
export function wrongOptions(faults: readonly string[]): TypeError {
  return new TypeError(`wrong options:\n${faults.map((fault) => `  ${fault}`).join('\n')}`);
}

/** Throws TypeError where that is no object of options. */
export function optionsObject(value: unknown, place: string): OptionsObject {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw wrongOptions([`${place}: must be an object`]);
  return value as OptionsObject;
}

/** Returns what is wrong with an API's id; undefined = nothing. */
export function apiIdFault(apiId: unknown, place: string): string | undefined {
  return typeof apiId === 'string' && API_ID.test(apiId)
    ? undefined
    : `${place}: must match ${API_ID.source}`;
}

/** Says what is wrong with a query of permissions; undefined = nothing. */
export function permissionsFault(query: unknown, place: string): string | undefined {
  const read = readQuery(query);
  return 'fault' in read ? `${place}: ${read.fault}` : undefined;
}
