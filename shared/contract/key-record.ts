import { type LimitInput, type RateLimit, wholeLimit } from './credits.ts';
import { PERMISSIONS_PROTOCOL, ROLES_PROTOCOL, slugsOf, slugsText } from './slugs.ts';

/** Kinds of values that a field of a key can have. */
interface Values {
  flag: boolean;
  /** Unix milliseconds. */
  time: number;
  text: string;
  object: object;
  limit: LimitInput;
  limits: readonly (LimitInput & Pick<RateLimit, 'name'>)[];
  slugs: readonly string[];
  /** Ids of APIs, of an identity alone: no key has them. */
  apis: readonly string[];
}
/** Kind of a value. */
export type Kind = keyof Values;

interface Row {
  /** Name of the field in the record in Redis. */
  readonly letter: string;
  readonly kind: Kind;
  /** Of texts: most characters. */
  readonly lengthMax?: number;
  /** Meaning, for documentation. */
  readonly description: string;
  /** The command line's option for it: its argument, and its help. */
  readonly option?: readonly [argument: string, help: string];
  /** The protocol that verifiers must speak to obey it (protocol.ts); 1 where absent. A write that sets it is refused while older ones follow. */
  readonly needs?: number;
}

/**
 * The fields of a key that people set and change: the single place that says so. Requests, answers, changes, the audit log,
 * verdicts, the command line and the documentation follow from the rows. A change carries every field to the verifiers, in
 * this order, so a new one comes last. The scripts write-change.lua and sync.lua list the letters too; a test compares them.
 */
export const KEY_FIELDS = {
  enabled: {
    letter: 'e',
    kind: 'flag',
    description: 'false: the key is refused.',
  },
  expires: {
    letter: 'x',
    kind: 'time',
    description: 'Unix milliseconds from which on the key is refused.',
    option: ['<time>', 'when it stops: Unix ms, ISO 8601, +90m, +12h or +30d'],
  },
  name: {
    letter: 'n',
    kind: 'text',
    lengthMax: 256,
    description: 'A name for people.',
    option: ['<name>', 'a name for people'],
  },
  externalId: {
    letter: 'o',
    kind: 'text',
    lengthMax: 256,
    needs: ROLES_PROTOCOL,
    description: "The id of its identity in the caller's own system.",
    option: ['<id>', 'the id of its identity in your own system'],
  },
  meta: {
    letter: 'm',
    kind: 'object',
    description: 'Any JSON object, at most 8 KiB and 32 levels deep; every verification returns it.',
    option: ['<json>', 'a JSON object that every verification returns'],
  },
  environment: {
    letter: 'E',
    kind: 'text',
    lengthMax: 256,
    needs: 2,
    description: 'Such as live or test; every verification returns it.',
    option: ['<name>', 'such as live or test; every verification returns it'],
  },
  ratelimit: {
    letter: 'l',
    kind: 'limit',
    needs: 2,
    description: 'Most verifications in each window of so many milliseconds: `{limit, duration, async}`.',
    option: ['<calls/time>', 'most verifications in a time, such as 100/10s, 5000/1h or none'],
  },
  ratelimits: {
    letter: 'L',
    kind: 'limits',
    needs: 2,
    description:
      'Further limits, each obeyed where a verification names it: `[{name, limit, duration, async}]`.',
    option: ['<json>', 'further limits by name, JSON: [{"name":"tokens","limit":20000,"duration":3600000}]'],
  },
  permissions: {
    letter: 'P',
    kind: 'slugs',
    needs: PERMISSIONS_PROTOCOL,
    description: 'What the key may do, by names of your own; a verification can ask for them.',
    option: ['<slugs>', 'what the key may do, such as files.read,files.write'],
  },
  roles: {
    letter: 'R',
    kind: 'slugs',
    needs: ROLES_PROTOCOL,
    description: 'Names of its roles: it may do what any of them may.',
    option: ['<names>', 'its roles, such as editor,billing'],
  },
  apiIds: {
    letter: 'A',
    kind: 'apis',
    needs: ROLES_PROTOCOL,
    description: 'Of an identity, and of no key: the APIs in which it holds; none = all.',
  },
} as const satisfies Readonly<Record<string, Row>>;

/** Other names of fields, for clients that know them by those: taken in requests, and shown beside the field itself. */
export const ALIASES = { ownerId: 'externalId' } as const satisfies Readonly<
  Record<string, keyof typeof KEY_FIELDS>
>;
/** Other name of a field. */
export type Alias = keyof typeof ALIASES;

type Fields = typeof KEY_FIELDS;
/** Name of a field, as people write it. */
export type KeyField = keyof Fields;
/** Name of a field in the record in Redis. */
export type Letter = Fields[KeyField]['letter'];
type KindOf<Name extends KeyField> = Fields[Name]['kind'];
/** Fields that every key has: flags, and objects, which are empty where nothing was set. */
export type PresentField = {
  [Name in KeyField]: KindOf<Name> extends 'flag' | 'object' ? Name : never;
}[KeyField];
/** Fields that identities have and keys do not. */
export type IdentityField = { [Name in KeyField]: KindOf<Name> extends 'apis' ? Name : never }[KeyField];
/** Fields that a key can be without. */
export type Clearable = { [Name in KeyField]: KindOf<Name> extends 'flag' ? never : Name }[KeyField];

/** Fields of a key as people see them. */
export type KeyFields = { readonly [Name in PresentField]: Values[KindOf<Name>] } & {
  readonly [Name in Exclude<KeyField, PresentField>]?: Values[KindOf<Name>];
};
/** The same under all their names. */
export type AliasedFields = KeyFields & { readonly [Name in Alias]?: KeyFields[(typeof ALIASES)[Name]] };
/** Fields that are to be set; `null` clears. */
export type KeyPatch = {
  readonly [Name in KeyField]?: Values[KindOf<Name>] | (Name extends Clearable ? null : never);
};
/** Fields by their letters, as stored: `''` stands for none. */
export type StoredFields = Readonly<Partial<Record<Letter, string>>>;
/** Fields as a verifier keeps them: a time of 0 and a text of `''` stand for none, objects and limits are JSON text, permissions as they are stored. */
export type KeyState = { readonly [Name in KeyField]: States[KindOf<Name>] } & {
  /** Name of the pool from which its credits come; `''` = as many as are asked for. */
  readonly pool: string;
};
interface States extends Omit<Values, 'object' | 'limit' | 'limits' | 'slugs' | 'apis'> {
  object: string;
  limit: string;
  limits: string;
  slugs: string;
  apis: string;
}

const rows = Object.entries(KEY_FIELDS) as [KeyField, Row & { letter: Letter }][];
/** Name of a field that is a text. */
export type TextField = {
  [Name in KeyField]: KindOf<Name> extends 'text' ? Name : never;
}[KeyField];
/** Texts of a key, in the order of the rows, and the same under their other names. */
export const TEXT_FIELDS = [
  ...rows.flatMap(([name, { kind }]) => (kind === 'text' ? [[name, name]] : [])),
  ...Object.entries(ALIASES),
].map(([label, name]) => ({ label, name })) as readonly { label: string; name: TextField }[];
/** Letters of the fields, in the order of the rows. */
export const KEY_LETTERS: readonly Letter[] = rows.map(([, { letter }]) => letter);
/** The letter of a record's pool of credits, which changes with them and which nobody sets or sees. */
export const POOL = 'q';
/** Names of the fields that a key can be without. */
export const CLEARABLE = rows.flatMap(([name, { kind }]) =>
  kind === 'flag' || kind === 'apis' ? [] : [name],
) as Exclude<Clearable, IdentityField>[];

/** The protocol that verifiers need to obey these fields; what is cleared needs nothing. */
export function neededFor(fields: StoredFields, table: Readonly<Record<string, Row>> = KEY_FIELDS): number {
  const texts: Readonly<Record<string, string>> = fields;
  return Math.max(1, ...Object.values(table).map(({ letter, needs = 1 }) => (texts[letter] ? needs : 1)));
}

/** Other fields of the record in Redis, by their letters; each is written by us only. */
export const RECORD_FACTS = {
  p: 'SHA-256 of the secret.',
  s: 'The beginning of the secret, for people who look for a key.',
  b: 'Random bytes of the secret, if they are not 16.',
  c: 'Creation time, Unix milliseconds.',
  i: 'Creation number.',
  u: 'Time of the last change, Unix milliseconds.',
  v: 'Version: sequence and hash of the last change.',
  T: 'After a rotation: id of the new key.',
  Y: 'After a rotation: `operationId` and `expiration` of the call.',
  F: 'Of a new key: id of the key that it replaces.',
  q: 'Name of the pool of its credits, if it has credits.',
  M: '`1` if `meta` is longer than 64 bytes and lies in a key of its own.',
} as const;

/** Fields of a patch, as they are stored. */
export function storedFields(patch: KeyPatch): StoredFields {
  const entries = rows.flatMap(([name, { letter, kind }]) => {
    const value = patch[name];
    return value === undefined ? [] : [[letter, value === null ? '' : encodeValue(kind, value)]];
  });
  return Object.fromEntries(entries) as StoredFields;
}

function encodeValue(kind: Kind, value: unknown): string {
  if (kind === 'flag') return value ? '1' : '0';
  if (kind === 'slugs' || kind === 'apis') return slugsText(value as readonly string[]);
  if (kind === 'limit') return JSON.stringify(wholeLimit(value as Values['limit']));
  if (kind !== 'object' && kind !== 'limits') return String(value);
  const text = JSON.stringify(kind === 'limits' ? (value as Values['limits']).map(wholeLimit) : value);
  return text === '{}' || text === '[]' ? '' : text; // nothing is not stored
}

/** The fields of a record as people see them, under all their names. */
export function aliasedFields(fields: StoredFields): AliasedFields {
  const fieldsByName = keyFields(fields);
  const aliases = Object.entries(ALIASES).flatMap(([alias, name]) =>
    fieldsByName[name] === undefined ? [] : [[alias, fieldsByName[name]]],
  );
  return { ...fieldsByName, ...Object.fromEntries(aliases) };
}

/** The fields of a record as people see them. */
export function keyFields(fields: StoredFields): KeyFields {
  const values = fieldValues((letter, kind) => {
    const text = fields[letter] ?? '';
    if (kind === 'object') return JSON.parse(text || '{}');
    return text === '' && kind !== 'flag' ? undefined : publicValue(kind, text);
  });
  return values as KeyFields;
}

/** The stored fields that are given, as the audit log shows them: `null` is none, and of objects there is a summary. */
export function auditedFields(fields: StoredFields, summaryOf: (text: string) => object): object {
  return fieldValues((letter, kind) => {
    const text = fields[letter];
    if (text === undefined) return undefined;
    if (kind === 'object') return summaryOf(text || '{}');
    return text === '' && kind !== 'flag' ? null : publicValue(kind, text);
  });
}

/** A value for each field by its name; those that are undefined are left out. */
function fieldValues(ofField: (letter: Letter, kind: Kind) => unknown): object {
  const values = rows.map(([name, { letter, kind }]) => [name, ofField(letter, kind)] as const);
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}

/** A verifier's state from stored values in the order of the rows; absent ones are none. */
export function decodeState(values: readonly string[], pool = ''): KeyState {
  const state: Record<string, unknown> = {};
  for (const [i, [name, { kind }]] of rows.entries()) {
    state[name] = kind === 'object' ? values[i] || '{}' : decodeValue(kind, values[i] ?? '');
  }
  state['pool'] = pool;
  return state as KeyState;
}

function publicValue(kind: Kind, text: string): unknown {
  if (kind === 'slugs' || kind === 'apis') return slugsOf(text);
  return kind === 'limit' || kind === 'limits' ? JSON.parse(text) : decodeValue(kind, text);
}

function decodeValue(kind: Kind, text: string): boolean | number | string {
  if (kind === 'flag') return text === '1';
  return kind === 'time' ? Number(text) : text;
}
