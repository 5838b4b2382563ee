import type { LimitInput } from '#shared/protocol/records/limit.ts';

/** A call of the API that changed something. */
export interface Call {
  readonly operation: string;
  readonly input: Readonly<Record<string, unknown>>;
}

/** Formats a call for a POSIX shell with curl; the root key is in an environment variable. */
export const curlOf = ({ operation, input }: Call, base: string): string =>
  [
    `curl -s ${base}v1/${operation}`,
    '-H "authorization: Bearer $KEYFENCE_ROOT_KEY" -H \'content-type: application/json\'',
    `-d ${quote(JSON.stringify(input))}`,
  ].join(' \\\n  ');

/** Formats a call as a script for Node; the root key is in an environment variable. */
export const scriptOf = ({ operation, input }: Call, base: string): string =>
  `import { env } from 'node:process';

const response = await fetch(${JSON.stringify(`${base}v1/${operation}`)}, {
  method: 'POST',
  headers: {
    authorization: \`Bearer \${env.KEYFENCE_ROOT_KEY}\`,
    'content-type': 'application/json',
  },
  body: JSON.stringify(${JSON.stringify(input)}),
});
console.log(await response.json());`;

/** Formats a call for the command line; undefined if no command does the same. */
export function commandOf({ operation, input }: Call): string | undefined {
  const [words, fields] = partsOf(operation, input) ?? [];
  if (words === undefined) return undefined;
  const options = Object.entries(fields ?? {}).map(([name, value]) => optionOf(name, value));
  if (options.includes(undefined)) return undefined;
  return ['npx keyfence', ...words.map(quote), ...options].join(' ');
}

type Parts = readonly [words: readonly string[], fields?: object];

function partsOf(operation: string, input: Call['input']): Parts | undefined {
  const { keyId, apiId, name, roleId, rootKeyId, endpointId, externalId, enabled, ...others } = input;
  const named = name === undefined ? {} : { name };
  const isSwitch = typeof enabled === 'boolean' && Object.keys(others).length === 0 && name === undefined;
  const verb = enabled === true ? 'enable' : 'disable';
  const disabled = enabled === false ? { disabled: true } : {};
  switch (operation) {
    case 'keys.createKey':
      return [['keys', 'create', text(apiId)], { ...named, ...own({ externalId }), ...others, ...disabled }];
    case 'keys.updateKey':
      if (isSwitch && externalId === undefined) return [['keys', verb, text(keyId)]];
      if (enabled !== undefined) return undefined;
      return [['keys', 'update', text(keyId)], { ...named, ...own({ externalId }), ...others }];
    case 'keys.deleteKey':
      return [['keys', 'delete', text(keyId)], { yes: true }];
    case 'keys.rerollKey':
      return [['keys', 'reroll', text(keyId)], { expiration: spanOf(Number(input['expiration'] ?? 0)) }];
    case 'apis.createApi':
      return [['apis', 'create', text(name)], { ...(apiId === undefined ? {} : { id: apiId }), ...others }];
    case 'apis.updateApi':
      return [['apis', 'update', text(apiId)], { ...named, ...others }];
    case 'apis.deleteApi':
      return [['apis', 'delete', text(apiId)], { yes: true }];
    case 'identities.createIdentity':
      return [['identities', 'create', text(externalId)], { ...others, ...disabled }];
    case 'permissions.createRole':
      return [['roles', 'create', text(name)], others];
    case 'permissions.setRolePermissions':
      return [['roles', 'set', text(roleId), text(input['permissions'])]];
    case 'permissions.deleteRole':
      return [['roles', 'delete', text(roleId)], { yes: true }];
    case 'rootKeys.createRootKey':
      return [
        [
          'root-keys',
          'create',
          text(name),
          ...list(input['permissions']).flatMap((each) => ['--permission', each]),
        ],
      ];
    case 'rootKeys.updateRootKey':
      return isSwitch ? [['root-keys', verb, text(rootKeyId)]] : undefined;
    case 'rootKeys.deleteRootKey':
      return [['root-keys', 'delete', text(rootKeyId)], { yes: true }];
    case 'webhooks.updateEndpoint':
      return isSwitch ? [['webhooks', verb, text(endpointId)]] : undefined;
    case 'webhooks.deleteEndpoint':
      return [['webhooks', 'delete', text(endpointId)], { yes: true }];
    default:
      return undefined;
  }
}

const own = (fields: object) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
const list = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : []);
const text = (value: unknown): string => (Array.isArray(value) ? value.join() : String(value ?? ''));

const UNITS = { d: 86_400_000, h: 3_600_000, m: 60_000 };
function spanOf(ms: number): string {
  const [unit, length] = Object.entries(UNITS).find(([, each]) => ms % each === 0) ?? ['m', UNITS.m];
  return ms === 0 ? '0' : `${Math.ceil(ms / length)}${unit}`;
}

/** Formats a field as an option; null clears it. undefined = no option has such a value. */
function optionOf(name: string, value: unknown): string | undefined {
  const flag = name.replace(/Ms$/, '').replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  if (value === null) return `--clear ${name}`;
  if (value === true) return `--${flag}`;
  const argument = argumentOf(name, value);
  return argument === undefined ? undefined : `--${flag} ${quote(argument)}`;
}

function argumentOf(name: string, value: unknown): string | undefined {
  if (name === 'ratelimit') {
    const { limit, duration = 1, async = true } = value as LimitInput;
    return async && duration % 1000 === 0 ? `${limit}/${duration / 1000}s` : undefined;
  }
  if (name.endsWith('Ms')) return Number(value) % UNITS.m === 0 ? spanOf(Number(value)) : undefined;
  if (name === 'expires') return new Date(Number(value)).toISOString();
  if (name === 'refill') {
    const { interval, amount, refillDay } = value as Record<string, string | number>;
    return [interval, amount, refillDay].filter((each) => each !== undefined).join(':');
  }
  const isList = Array.isArray(value) && value.every((each) => typeof each === 'string');
  return isList ? value.join() : typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** Quotes a text for a POSIX shell, if it needs that. */
const quote = (word: string): string =>
  /^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
