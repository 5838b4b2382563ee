import { type TNull, type TOptional, type TSchemaOptions, type TUnion, Type } from 'typebox';
import {
  ALIASES,
  type Alias,
  CLEARABLE,
  type Clearable,
  type IdentityField,
  KEY_FIELDS,
  type KeyField,
  type PresentField,
} from '#shared/protocol/records/key-record.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { SLUGS_MAX } from '#shared/rules/slugs.ts';
import { UNIX_MS_MIN } from '#shared/rules/unix-ms.ts';
import { Concurrency, Ratelimit, Ratelimits, RatelimitsView, RatelimitView } from './limits.ts';
import { OriginList, Ranges } from './places.ts';
import { RoleName, Slugs } from './slugs.ts';

/** Schemas of a key's fields, by their kind. */
const kinds = {
  flag: (options: TSchemaOptions) => Type.Boolean(options),
  time: (options: TSchemaOptions) => Type.Integer(options),
  text: (options: TSchemaOptions) => Type.String(options),
  object: (options: TSchemaOptions) => Type.Object({}, { additionalProperties: true, ...options }),
  limit: Ratelimit,
  limits: Ratelimits,
  concurrency: Concurrency,
  slugs: Slugs,
  ranges: Ranges,
  origins: OriginList,
};

/** Schemas of a key's fields in responses, by their kind. */
const viewKinds = { ...kinds, limit: RatelimitView, limits: RatelimitsView };

type FieldName = Exclude<KeyField, IdentityField> | Alias;

type FieldOf<Name extends FieldName> = Name extends Alias ? (typeof ALIASES)[Name] : Name;

type FieldSchema<Name extends FieldName> = ReturnType<
  (typeof kinds)[(typeof KEY_FIELDS)[FieldOf<Name>]['kind']]
>;

type FieldView<Name extends FieldName> = ReturnType<
  (typeof viewKinds)[(typeof KEY_FIELDS)[FieldOf<Name>]['kind']]
>;

const TIME_MAX = 8_640_000_000_000_000;

const boundsOf: Partial<Record<keyof typeof kinds, TSchemaOptions>> = {
  time: { minimum: UNIX_MS_MIN, maximum: TIME_MAX },
  text: { minLength: 1 },
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

const schemaOf = (name: string, kind: keyof typeof kinds, of: typeof kinds | typeof viewKinds = kinds) =>
  name === 'roles' ? roleNames : of[kind];

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
    const schema = schemaOf(name, kind, viewKinds)({ description });
    return [name, kind === 'flag' || kind === 'object' ? schema : Type.Optional(schema)];
  }),
) as {
  [Name in FieldName]: FieldOf<Name> extends PresentField ? FieldView<Name> : TOptional<FieldView<Name>>;
};

export const { name: Name, externalId: ExternalId, ownerId: OwnerId } = FIELDS;

const BYTES_MAX = 8192;

/** Common JSON parsers accept this depth; verifiers pass metas on to programs of every kind. */
const DEPTH_MAX = 32;

/** Throws BAD_REQUEST if a meta is too deep or too long, or has a number that would be stored as another one. */
export function checkMeta(meta: object): void {
  // Check the depth first: JSON.stringify is recursive and would fail on a deep meta.
  if (isDeeper(meta, DEPTH_MAX)) {
    throw new ApiError('BAD_REQUEST', `meta: must be at most ${DEPTH_MAX} levels deep`);
  }
  if (hasInfinity(meta))
    throw new ApiError(
      'BAD_REQUEST',
      'meta: must have no number that would change: beyond 1.8e308, or a whole number of more than 53 bits (9007199254740991); send such a number as a string',
    );
  if (Buffer.byteLength(JSON.stringify(meta)) > BYTES_MAX) {
    throw new ApiError('BAD_REQUEST', `meta: must be at most ${BYTES_MAX} bytes of JSON`);
  }
}

/** Tells whether objects and lists are nested deeper than `levels`. */
function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((part) => isDeeper(part, levels - 1));
}

/** Tells whether there is a number that was parsed as infinite, also by `parseExactly`; it would be written as null. */
const hasInfinity = (value: unknown): boolean =>
  typeof value === 'object' && value !== null
    ? Object.values(value).some(hasInfinity)
    : typeof value === 'number' && !Number.isFinite(value);

/**
 * Renames aliases in a request to the fields' own names. Throws BAD_REQUEST if two names of a field have
 * different values.
 */
export function withoutAliases<Given extends object>(request: Given): Omit<Given, Alias> {
  const fields: Record<string, unknown> = Object.fromEntries(Object.entries(request));
  for (const [alias, name] of Object.entries(ALIASES)) {
    const value = fields[alias];
    delete fields[alias];
    if (value === undefined) continue;
    if (fields[name] !== undefined && fields[name] !== value) {
      throw new ApiError('BAD_REQUEST', `${alias}: must equal ${name}; give only one of the two`);
    }
    fields[name] = value;
  }
  return fields as Omit<Given, Alias>;
}
