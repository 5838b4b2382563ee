import { rangesText } from '../../rules/ip-ranges.ts';
import { originsText } from '../../rules/origins.ts';
import { slugsOf, slugsText } from '../../rules/slugs.ts';
import {
  type ConcurrencyInput,
  type ConcurrencyLimit,
  type DefaultLimit,
  LIMIT_FORMS,
  type LimitInput,
  type NamedLimit,
  type RateLimit,
  wholeConcurrency,
  wholeLimit,
  wholeNamedLimit,
} from './limit.ts';

/** The kinds of values of a key's fields. */
interface Values {
  flag: boolean;
  /** Unix milliseconds. */
  time: number;
  text: string;
  object: object;
  limit: DefaultLimit;
  limits: readonly RateLimit[];
  concurrency: readonly ConcurrencyLimit[];
  slugs: readonly string[];
  /** Addresses and ranges of addresses. */
  ranges: readonly string[];
  /** Origins of web pages. */
  origins: readonly string[];
  /** Ids of APIs. Only identities have such a field. */
  apis: readonly string[];
}
/** The kinds of values in the form in which users set them. */
interface Inputs extends Omit<Values, 'limit' | 'limits' | 'concurrency'> {
  limit: LimitInput;
  limits: readonly NamedLimit[];
  concurrency: readonly ConcurrencyInput[];
}
/** The kind of a value. */
export type Kind = keyof Values;

interface Row {
  /** Name of the field in the record in Redis. */
  readonly letter: string;
  readonly kind: Kind;
  /** Maximum length of a text, in characters. */
  readonly lengthMax?: number;
  /** Meaning, for the documentation. */
  readonly description: string;
  /** True = outsiders to whom time is lent, as by tokens, never go by it: its changes need not wait for them. */
  readonly isNeverLent?: true;
  /** Argument and help of the command line's option for the field. */
  readonly option?: readonly [argument: string, help: string];
}

/**
 * The fields of a key that users set and change. This is their only definition: requests, answers, changes,
 * the audit log, verdicts, the command line and the documentation are derived from its rows. A change
 * contains every field in this order, so a new field must come last. Scripts get the letters from here.
 */
export const KEY_FIELDS = {
  enabled: {
    letter: 'e',
    kind: 'flag',
    description: 'If false, verifiers refuse the key.',
  },
  expires: {
    letter: 'x',
    kind: 'time',
    description: 'Time from which verifiers refuse the key, in Unix milliseconds.',
    option: ['<time>', 'when the key expires'],
  },
  name: {
    letter: 'n',
    kind: 'text',
    lengthMax: 256,
    isNeverLent: true,
    description: 'A name for people.',
    option: ['<name>', 'a name for people'],
  },
  externalId: {
    letter: 'o',
    kind: 'text',
    lengthMax: 256,
    description: 'Your own id of the customer (identity) to whom the key belongs.',
    option: ['<id>', 'the id of its identity in your own system'],
  },
  meta: {
    letter: 'm',
    kind: 'object',
    isNeverLent: true,
    description: 'Any JSON object, at most 8 KiB and 32 levels deep. Every verdict on the key includes it.',
    option: ['<json>', 'a JSON object that every verification returns'],
  },
  environment: {
    letter: 'E',
    kind: 'text',
    lengthMax: 256,
    isNeverLent: true,
    description: 'A label such as live or test. Every verdict on the key includes it.',
    option: ['<name>', 'such as live or test; every verification returns it'],
  },
  ratelimit: {
    letter: 'l',
    kind: 'limit',
    isNeverLent: true,
    description: `\`{${LIMIT_FORMS.windows}}\`: at most \`limit\` verifications in each window of \`duration\` ms. \`{${LIMIT_FORMS.periods}}\`: in each hour, day, week or month.`,
    option: [
      '<calls/time>',
      'maximum number of verifications in a time, such as 100/10s or 5000/1h, or a quota such as 1000/month, or the word none',
    ],
  },
  ratelimits: {
    letter: 'L',
    kind: 'limits',
    isNeverLent: true,
    description: `Further rate limits with names, \`[{${LIMIT_FORMS.named}}]\`. A limit applies to verifications that name it, and with \`autoApply\` to every verification.`,
    option: ['<json>', 'further limits by name, JSON: [{"name":"tokens","limit":20000,"duration":3600000}]'],
  },
  permissions: {
    letter: 'P',
    kind: 'slugs',
    description: 'Permissions of the key, with names of your own. A verification can require them.',
    option: ['<slugs>', 'permissions of the key, such as files.read,files.write'],
  },
  roles: {
    letter: 'R',
    kind: 'slugs',
    description: 'Names of the roles of the key. The key has the permissions of all its roles.',
    option: ['<names>', 'its roles, such as editor,billing'],
  },
  apiIds: {
    letter: 'A',
    kind: 'apis',
    description:
      'Only identities have this field: the APIs in which the identity applies. If empty, it applies in all APIs.',
  },
  allowedIps: {
    letter: 'I',
    kind: 'ranges',
    description:
      'Addresses and ranges, such as `192.0.2.0/24` or `2001:db8::/32`, from which the key may be used. If there are none: from anywhere.',
    option: ['<ranges>', 'where it may be used, such as 192.0.2.0/24,2001:db8::/32'],
  },
  allowedOrigins: {
    letter: 'O',
    kind: 'origins',
    description:
      'Origins of the web pages that may use the key, such as `https://app.example.com` or `https://*.example.com`. If there are none: any page, and no page.',
    option: ['<origins>', 'web pages that may use it, such as https://app.example.com,https://*.example.com'],
  },
  concurrency: {
    letter: 'C',
    kind: 'concurrency',
    isNeverLent: true,
    description:
      'Concurrency limits with names, `[{name, limit}]`: at most `limit` holds at the same time. A name belongs to one limit, so none of `ratelimits` has it.',
    option: ['<json>', 'limits of holds at the same time, JSON: [{"name":"jobs","limit":3}]'],
  },
} as const satisfies Readonly<Record<string, Row>>;

/**
 * Other names of fields, for clients that know these names. Requests may use them, and answers show them
 * beside the fields.
 */
export const ALIASES = { ownerId: 'externalId' } as const satisfies Readonly<
  Record<string, keyof typeof KEY_FIELDS>
>;
/** Another name of a field. */
export type Alias = keyof typeof ALIASES;

type Fields = typeof KEY_FIELDS;
/** The name of a field in requests and answers. */
export type KeyField = keyof Fields;
/** The name of a field in the record in Redis. */
export type Letter = Fields[KeyField]['letter'];
type KindOf<Name extends KeyField> = Fields[Name]['kind'];
/** Fields that every key has: flags and objects. An object is empty if it was never set. */
export type PresentField = {
  [Name in KeyField]: KindOf<Name> extends 'flag' | 'object' ? Name : never;
}[KeyField];
/** Fields that only identities have. */
export type IdentityField = { [Name in KeyField]: KindOf<Name> extends 'apis' ? Name : never }[KeyField];
/** Fields that a key may lack. */
export type Clearable = { [Name in KeyField]: KindOf<Name> extends 'flag' ? never : Name }[KeyField];

/** The fields of a key in requests and answers. */
export type KeyFields = { readonly [Name in PresentField]: Values[KindOf<Name>] } & {
  readonly [Name in Exclude<KeyField, PresentField>]?: Values[KindOf<Name>];
};
/** The fields of a new record, in the form in which users set them. */
export type NewKeyFields = { readonly [Name in KeyField]?: Inputs[KindOf<Name>] } & {
  readonly managedBy?: string;
};
/** The fields of a key under all their names. */
export type AliasedFields = KeyFields & { readonly [Name in Alias]?: KeyFields[(typeof ALIASES)[Name]] };
/** Fields to set; `null` clears a field. */
export type KeyPatch = {
  readonly [Name in KeyField]?: Inputs[KindOf<Name>] | (Name extends Clearable ? null : never);
} & { readonly managedBy?: string | null };
/** Stored fields by their letters; `''` = no value. */
export type StoredFields = Readonly<Partial<Record<Letter | typeof MANAGED_BY, string>>>;
/**
 * Fields in a verifier's memory. A time of 0 and a text of `''` mean no value; objects and limits are JSON
 * text; permissions are as stored.
 */
export type KeyState = { readonly [Name in KeyField]: States[KindOf<Name>] } & {
  /** Name of the pool with the key's credits; `''` = unlimited credits. */
  readonly pool: string;
  /** Id of the first key of its rotations, under which the uses of its limits count; `''` = its own id. */
  readonly firstId: string;
};
type States = { [Of in Kind]: Values[Of] extends boolean | number ? Values[Of] : string };

const rows = Object.entries(KEY_FIELDS) as [KeyField, Row & { letter: Letter }][];
/** The name of a text field. */
export type TextField = {
  [Name in KeyField]: KindOf<Name> extends 'text' ? Name : never;
}[KeyField];
/** The text fields of a key, in the order of the rows, and again under their other names. */
export const TEXT_FIELDS = [
  ...rows.flatMap(([name, { kind }]) => (kind === 'text' ? [[name, name]] : [])),
  ...Object.entries(ALIASES),
].map(([label, name]) => ({ label, name })) as readonly { label: string; name: TextField }[];
/** Letters of the fields, in the order of the rows. */
export const KEY_LETTERS: readonly Letter[] = rows.map(([, { letter }]) => letter);
/** Lua for scripts that read or write a whole record: `FIELDS` names the fields, `AT` has the place of each. */
export const LUA_FIELDS = `local FIELDS = {${KEY_LETTERS.map((letter) => `'${letter}'`).join(', ')}} local AT = {${KEY_LETTERS.map((letter, i) => `${letter} = ${i + 1}`).join(', ')}} `;
/**
 * The letter of a record's pool of credits. It changes with the credits; users can neither set nor see it.
 */
export const POOL = 'q';
/**
 * The letter of the set of files that declares a record. Users set it like a field, but no entry of a change log has it,
 * because verifiers need not know it.
 */
export const MANAGED_BY = 'B';
/** The letter of the time since when a record differs from its set; write-change.lua sets it. */
export const DRIFTED = 'D';
/** Letters of the fields by which nobody goes to whom time is lent. */
export const NEVER_LENT: ReadonlySet<string> = new Set([
  ...rows.flatMap(([, { letter, isNeverLent }]) => (isNeverLent ? [letter] : [])),
  ...[MANAGED_BY, DRIFTED],
]);
/** Names of the fields that a key may lack. */
export const CLEARABLE = rows.flatMap(([name, { kind }]) =>
  kind === 'flag' || kind === 'apis' ? [] : [name],
) as Exclude<Clearable, IdentityField>[];

export function storedFields(patch: KeyPatch): StoredFields {
  const entries = rows.flatMap(([name, { letter, kind }]) => {
    const value = patch[name];
    return value === undefined ? [] : [[letter, value === null ? '' : encodeValue(kind, value)]];
  });
  const managed = patch.managedBy === undefined ? {} : { [MANAGED_BY]: patch.managedBy ?? '' };
  return { ...Object.fromEntries(entries), ...managed } as StoredFields;
}

function encodeValue(kind: Kind, value: unknown): string {
  if (kind === 'flag') return value ? '1' : '0';
  if (kind === 'ranges') return rangesText(value as readonly string[]);
  if (kind === 'origins') return originsText(value as readonly string[]);
  if (kind === 'slugs' || kind === 'apis') return slugsText(value as readonly string[]);
  if (kind === 'limit') return JSON.stringify(wholeLimit(value as Inputs['limit']));
  if (kind === 'limits') return jsonText((value as Inputs['limits']).map(wholeNamedLimit));
  if (kind === 'concurrency') return jsonText((value as Inputs['concurrency']).map(wholeConcurrency));
  return kind === 'object' ? jsonText(value) : String(value);
}

/** Returns the JSON of a value; `''` if it is empty. */
function jsonText(value: unknown): string {
  const text = JSON.stringify(value);
  return text === '{}' || text === '[]' ? '' : text;
}

/** Returns the fields of a record for an answer, under all their names. */
export function aliasedFields(fields: StoredFields): AliasedFields {
  const fieldsByName = keyFields(fields);
  const aliases = Object.entries(ALIASES).flatMap(([alias, name]) =>
    fieldsByName[name] === undefined ? [] : [[alias, fieldsByName[name]]],
  );
  return { ...fieldsByName, ...Object.fromEntries(aliases) };
}

/** Returns the fields of a record for an answer. */
export function keyFields(fields: StoredFields): KeyFields {
  return fieldValues((letter, kind) => {
    const text = fields[letter] ?? '';
    if (kind === 'object') return JSON.parse(text || '{}');
    return text === '' && kind !== 'flag' ? undefined : publicValue(kind, text);
  }) as KeyFields;
}

/**
 * Returns the given stored fields for the audit log: `null` = no value; an object is replaced by a summary.
 */
export function auditedFields(fields: StoredFields, summaryOf: (text: string) => object): object {
  const values = fieldValues((letter, kind) => {
    const text = fields[letter];
    if (text === undefined) return undefined;
    if (kind === 'object') return summaryOf(text || '{}');
    return text === '' && kind !== 'flag' ? null : publicValue(kind, text);
  });
  const managedBy = fields[MANAGED_BY];
  return managedBy === undefined ? values : { ...values, managedBy: managedBy || null };
}

/** Returns a value for each field by its name, without undefined values. */
function fieldValues(ofField: (letter: Letter, kind: Kind) => unknown): object {
  const values: Record<string, unknown> = {};
  for (const [name, { letter, kind }] of rows) {
    const value = ofField(letter, kind);
    if (value !== undefined) values[name] = value;
  }
  return values;
}

/** Decodes a verifier's state from stored values in the order of the rows. A missing value means no value. */
export function decodeState(
  values: readonly string[],
  { pool, firstId }: Pick<KeyState, 'pool' | 'firstId'> = { pool: '', firstId: '' },
): KeyState {
  const state: Record<string, unknown> = {};
  for (const [i, [name, { kind }]] of rows.entries()) {
    state[name] = kind === 'object' ? values[i] || '{}' : decodeValue(kind, values[i] ?? '');
  }
  return { ...state, pool, firstId } as KeyState;
}

function publicValue(kind: Kind, text: string): unknown {
  if (kind === 'slugs' || kind === 'apis' || kind === 'ranges' || kind === 'origins') return slugsOf(text);
  const isJson = kind === 'limit' || kind === 'limits' || kind === 'concurrency';
  return isJson ? JSON.parse(text) : decodeValue(kind, text);
}

function decodeValue(kind: Kind, text: string): boolean | number | string {
  if (kind === 'flag') return text === '1';
  return kind === 'time' ? Number(text) : text;
}

/** The sequence of a record's last change, with which its version begins; 0 = it never changed. */
export const sequenceOf = (version: string | null | undefined): number => Number.parseInt(version || '0', 10);

/** Other fields of the record in Redis, by their letters. Only Keyfence sets them. */
export const RECORD_FACTS = {
  p: 'SHA-256 of the secret; of a key that was imported by another digest, the name of that (foreign-digests.ts).',
  s: 'The first characters of the secret, so that people can recognize the key.',
  b: 'Number of random bytes in the secret, if it is not 16.',
  f: '`1` if the secret has a foreign format, so that only verifiers with FOREIGN_KEYS on find the key; or the digest by which such a key was imported, which FOREIGN_DIGESTS must name.',
  c: 'Time of creation, in Unix milliseconds.',
  i: 'Creation number.',
  u: 'Time of the last change, in Unix milliseconds.',
  v: 'Version: the sequence number of the last change, and the beginning of its hash.',
  T: 'Only after a rotation: the id of the new key.',
  Y: 'Only after a rotation: the `operationId` and `expiration` of the call.',
  F: 'Only on a key that replaces another key after a rotation: the id of the replaced key.',
  W: 'Only on a key that replaces another key after a rotation: the id of the first key, under which the uses of its limits count.',
  K: 'Only if its secret was found in public: JSON with the time of the report and the URL.',
  q: 'Name of the pool with the credits of the key. Absent if the key has no credits.',
  B: 'Name of the set of files that declares the record. Absent if none does.',
  D: 'Only with `B`: the time of the first change since the last one by that set, in Unix milliseconds.',
  M: '`1` if `meta` is longer than 64 bytes. It is then stored under a Redis key of its own.',
} as const;
