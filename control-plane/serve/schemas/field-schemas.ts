import {
  type TArrayOptions,
  type TNull,
  type TOptional,
  type TSchema,
  type TSchemaOptions,
  type TUnion,
  Type,
} from 'typebox';
import {
  ALIASES,
  type Alias,
  CLEARABLE,
  type Clearable,
  type IdentityField,
  KEY_FIELDS,
  type KeyField,
  type PresentField,
} from '#shared/contract/key-record.ts';
import { SLUGS_MAX } from '#shared/contract/slugs.ts';
import { UNIX_MS_MIN } from '#shared/contract/unix-ms.ts';

import { Ratelimit, Ratelimits } from './limit-schemas.ts';
import { Ranges } from './range-schemas.ts';
import { RoleName } from './role-schemas.ts';
import { Slugs } from './slug-schemas.ts';

/** Schemas of fields that several responses have. */

export const Sequence = Type.Integer({
  minimum: 0,
  description: "The sequence number of a change in its API's log.",
});
export const Time = (description: string) =>
  Type.Integer({ description: `${description}, Unix milliseconds.` });

export const List = <Item extends TSchema>(item: Item, options: TArrayOptions = {}) =>
  Type.Immutable(Type.Array(item, options));
export const Id = (thing: string) => Type.String({ description: `The id of ${thing}.` });
export const Cursor = Type.Optional(
  Type.String({ description: 'Cursor of the next page; absent on the last page.' }),
);

/** Schemas of a key's fields, by their kind. */
const kinds = {
  flag: (options: TSchemaOptions) => Type.Boolean(options),
  time: (options: TSchemaOptions) => Type.Integer(options),
  text: (options: TSchemaOptions) => Type.String(options),
  object: (options: TSchemaOptions) => Type.Object({}, { additionalProperties: true, ...options }),
  limit: Ratelimit,
  limits: Ratelimits,
  slugs: Slugs,
  ranges: Ranges,
};
type FieldName = Exclude<KeyField, IdentityField> | Alias;
type FieldOf<Name extends FieldName> = Name extends Alias ? (typeof ALIASES)[Name] : Name;
type FieldSchema<Name extends FieldName> = ReturnType<
  (typeof kinds)[(typeof KEY_FIELDS)[FieldOf<Name>]['kind']]
>;

const TIME_MAX = 8_640_000_000_000_000;
const boundsOf = {
  flag: {},
  time: { minimum: UNIX_MS_MIN, maximum: TIME_MAX },
  text: { minLength: 1 },
  object: {},
  limit: {},
  limits: {},
  slugs: {},
  ranges: {},
};
/**
 * Some fields are named here only to fix their order in the document; new fields join `others`. No key has
 * `apiIds`.
 */
const { enabled, expires, name, meta, externalId, apiIds: _apiIds, ...others } = KEY_FIELDS;
const aliases = Object.entries(ALIASES).map(([alias, of]) => {
  const description = `Another name of \`${of}\`, for clients of the v1 SDK.`;
  return [alias, { ...KEY_FIELDS[of], description }] as const;
});
const rows = [...Object.entries({ name, meta, externalId, ...others, expires, enabled }), ...aliases];
const clearable: readonly string[] = [
  ...CLEARABLE,
  ...Object.entries(ALIASES).flatMap(([alias, of]) => (CLEARABLE.some((name) => name === of) ? alias : [])),
];

/** People name roles, whose names have other rules than permissions. */
const roleNames = (options: TSchemaOptions) =>
  Type.Immutable(Type.Array(RoleName, { maxItems: SLUGS_MAX, ...options }));
const schemaOf = (name: string, kind: keyof typeof kinds) => (name === 'roles' ? roleNames : kinds[kind]);

/** The fields of a key in requests, under each of their names. */
export const FIELDS = Object.fromEntries(
  rows.map(([name, { kind, description, ...row }]) => {
    const lengthLimit = 'lengthMax' in row ? { maxLength: row.lengthMax } : {};
    return [name, schemaOf(name, kind)({ ...boundsOf[kind], ...lengthLimit, description })];
  }),
) as { [Name in FieldName]: FieldSchema<Name> };
/** The same, each optional. */
export const OPTIONAL_FIELDS = Type.Partial(Type.Object(FIELDS)).properties;
/** The same, each optional, where `null` clears a field. */
export const CHANGED_FIELDS = Object.fromEntries(
  Object.entries(FIELDS).map(([name, schema]) => [
    name,
    Type.Optional(clearable.includes(name) ? Type.Union([schema, Type.Null()]) : schema),
  ]),
) as {
  [Name in FieldName]: TOptional<
    FieldOf<Name> extends Clearable ? TUnion<[FieldSchema<Name>, TNull]> : FieldSchema<Name>
  >;
};
/** The fields of a key in responses. */
export const FIELDS_VIEW = Object.fromEntries(
  rows.map(([name, { kind, description }]) => {
    const schema = schemaOf(name, kind)({ description });
    return [name, kind === 'flag' || kind === 'object' ? schema : Type.Optional(schema)];
  }),
) as {
  [Name in FieldName]: FieldOf<Name> extends PresentField ? FieldSchema<Name> : TOptional<FieldSchema<Name>>;
};
