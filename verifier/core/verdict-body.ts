import { flattenString } from '#shared/process/flatten-string.ts';
import type { Details, Entry } from '#shared/protocol/follower/key-cache.ts';
import type { Identity } from '#shared/protocol/follower/permissions.ts';
import { type Alias, KEY_FIELDS, TEXT_FIELDS, type TextField } from '#shared/protocol/records/key-record.ts';
import { DEFAULT_LIMIT, SHOWN_WINDOWS, type ShownLimit } from '#shared/protocol/records/limit.ts';
import { identityIdOf } from '#shared/rules/key-format.ts';
import { perVerdict } from '#shared/rules/verdict-codes.ts';
import { type Hold, isEnabled, type LimitOutcome, type Spending, type Verdict } from './verdict.ts';

/** A verdict that shows its key. */
export type VerdictWithKey = Verdict & { readonly entry: Entry };

/** Returns true if a verdict shows its key. */
export const showsKey = (verdict: Verdict): verdict is VerdictWithKey => verdict.entry !== undefined;

/** A field of an answer that shows a key. */
interface VerdictField<T> {
  /** Its JSON Schema. */
  readonly schema: object;
  /** True = the field is always present. */
  readonly isRequired?: true;
  /** True = only keys with details can have the field. */
  readonly isOfDetails?: true;
  /** Returns the value as JSON; `''` = the field is absent. */
  readonly json: (verdict: VerdictWithKey) => string;
  /**
   * Returns the value for applications, frozen if it is an object of the key; undefined = the field is
   * absent.
   */
  readonly value: (verdict: VerdictWithKey) => T | undefined;
}

/**
 * Caches results by the objects they were made from. A change replaces such an object, so a result never
 * becomes stale.
 */
export function memoize<From extends object, To>(make: (from: From) => To): (from: From) => To {
  const results = new WeakMap<From, To>();
  return (from) => {
    let result = results.get(from);
    if (result === undefined) {
      result = make(from);
      results.set(from, result);
    }
    return result;
  };
}

/** Freezes a value from JSON.parse, at every depth. */
function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  for (const part of Object.values(value)) deepFreeze(part);
  return Object.freeze(value);
}

type Meta = Readonly<Record<string, unknown>>;
/** The `meta` of a key without any. */
export const NO_META: Meta = Object.freeze({});
const metaOf = memoize(({ meta }: Details): Meta => deepFreeze(JSON.parse(meta)));
const identityOf = memoize(
  ({ json }: Identity): { readonly id: string; readonly externalId: string; readonly meta: object } =>
    deepFreeze(JSON.parse(json)),
);
const listJson = memoize((list: readonly string[]) => JSON.stringify(list));

const permissionsOf = ({ entry, effectivePermissions }: VerdictWithKey): readonly string[] | undefined =>
  (effectivePermissions ?? entry.ownPermissions)?.slugs;

const string = (description: string) => ({ type: 'string', description });
const number = (description: string) => ({ type: 'integer', minimum: 0, description });
const strings = (description: string) => ({ type: 'array', items: { type: 'string' }, description });

function text(name: TextField): VerdictField<string> {
  return {
    schema: string(KEY_FIELDS[name].description),
    isOfDetails: true,
    json({ entry }) {
      const value = entry.details?.[name];
      return value ? JSON.stringify(value) : '';
    },
    value: ({ entry }) => entry.details?.[name] || undefined,
  };
}

/** Returns a field with a list of names, which is absent if the list is empty. */
const names = (
  description: string,
  list: (verdict: VerdictWithKey) => readonly string[] | undefined,
): VerdictField<readonly string[]> => ({
  schema: strings(description),
  isOfDetails: true,
  json(verdict) {
    const all = list(verdict);
    return all === undefined || all.length === 0 ? '' : listJson(all);
  },
  value(verdict) {
    const all = list(verdict);
    return all === undefined || all.length === 0 ? undefined : all;
  },
});

/** The state of a rate limit in an answer. */
interface LimitValues {
  readonly limit: number;
  readonly remaining: number;
  readonly reset: number;
}
interface PlaceValues {
  readonly name: string;
  readonly limit: number;
  readonly remaining: number;
  readonly exceeded: boolean;
}
interface NamedLimitValues extends LimitValues, ShownLimit {
  readonly exceeded: boolean;
}

const limitState = {
  limit: number('The limit.'),
  remaining: number('The amount that is left.'),
  reset: number('The end of the current window, in Unix milliseconds.'),
};

const placeState = {
  name: string('The name of the limit.'),
  limit: number('The most requests that may run at once.'),
  remaining: number('The places that are free.'),
  exceeded: { type: 'boolean', description: 'True if the key was refused because of this limit.' },
};

/** Writes the JSON by hand for speed, because every answer about a limit contains it. */
function limitsJson(limits: readonly LimitOutcome[]): string {
  let all = '';
  for (const { limit, remaining, reset, exceeded } of limits) {
    const end = exceeded ? ',"exceeded":true}' : ',"exceeded":false}';
    all += `${all === '' ? '' : ','}${limit.label}${remaining},"reset":${reset}${end}`;
  }
  return `[${all}]`;
}

function nearestValues(limits: readonly LimitOutcome[]): LimitValues {
  const { limit, remaining, reset } = nearestLimit(limits);
  return { limit: limit.limit, remaining, reset };
}

/**
 * Returns the only limit that clients of the v1 SDK see: the limit that refuses the key, else the default
 * limit, else the limit with the least left.
 */
function nearestLimit(limits: readonly LimitOutcome[]): LimitOutcome {
  const [first] = limits;
  if (first !== undefined && limits.length === 1) return first;
  return (
    limits.find(({ exceeded }) => exceeded) ??
    limits.find(({ limit }) => limit.name === DEFAULT_LIMIT) ??
    limits.reduce((least, each) => (each.remaining < least.remaining ? each : least))
  );
}

const limitJson = (limits: readonly LimitOutcome[]): string => {
  const { limit, remaining, reset } = nearestValues(limits);
  return `{"limit":${limit},"remaining":${remaining},"reset":${reset}}`;
};

/**
 * The only table of the key's fields in an answer, in their order. JSON, the library's objects, its reader
 * and the OpenAPI document are derived from its rows.
 */
export const VERDICT_FIELDS = {
  keyId: {
    schema: string('The id of the key.'),
    isRequired: true,
    json: ({ entry }) => `"${entry.keyId}"`,
    value: ({ entry }) => entry.keyId,
  } satisfies VerdictField<string>,
  apiId: {
    schema: string('The API of the key.'),
    isRequired: true,
    json: ({ entry }) => `"${entry.epoch.apiId}"`,
    value: ({ entry }) => entry.epoch.apiId,
  } satisfies VerdictField<string>,
  enabled: {
    schema: { type: 'boolean', description: 'False if the key or its identity is disabled.' },
    isRequired: true,
    json: ({ entry, effectivePermissions }) => (isEnabled(entry, effectivePermissions) ? 'true' : 'false'),
    value: ({ entry, effectivePermissions }) => isEnabled(entry, effectivePermissions),
  } satisfies VerdictField<boolean>,
  meta: {
    schema: { type: 'object', additionalProperties: true, description: KEY_FIELDS.meta.description },
    isRequired: true,
    json: ({ entry }) => entry.details?.meta ?? '{}',
    value: ({ entry }) => (entry.details === undefined ? NO_META : metaOf(entry.details)),
  } satisfies VerdictField<Meta>,
  ...(Object.fromEntries(TEXT_FIELDS.map(({ label, name }) => [label, text(name)])) as {
    readonly [Name in TextField | Alias]: VerdictField<string>;
  }),
  permissions: names(
    `${KEY_FIELDS.permissions.description} Includes those of its roles; absent if it has none.`,
    permissionsOf,
  ),
  roles: names(
    'Names of its roles; absent if it has none.',
    ({ effectivePermissions }) => effectivePermissions?.roles,
  ),
  identity: {
    schema: {
      type: 'object',
      required: ['id', 'externalId', 'meta'],
      properties: {
        id: { type: 'string' },
        externalId: { type: 'string' },
        meta: { type: 'object', additionalProperties: true },
      },
      description: 'The identity of the key; absent if it has none.',
    },
    isOfDetails: true,
    json: ({ effectivePermissions }) => effectivePermissions?.identity?.json ?? '',
    value: ({ effectivePermissions }) =>
      effectivePermissions?.identity && identityOf(effectivePermissions.identity),
  } satisfies VerdictField<object>,
  expires: {
    schema: { type: 'integer', description: KEY_FIELDS.expires.description },
    json: ({ entry }) => (entry.expires === 0 ? '' : String(entry.expires)),
    value: ({ entry }) => entry.expires || undefined,
  } satisfies VerdictField<number>,
  remaining: {
    schema: number(
      'Credits left after this verification; absent if they are unlimited. A key that is refused for another reason may lack it.',
    ),
    json: ({ spending }) => (spending?.remaining === undefined ? '' : String(spending.remaining)),
    value: ({ spending }) => spending?.remaining,
  } satisfies VerdictField<number>,
  needed: {
    schema: number(
      'The cost of a refused question that no wait makes fit: it is more than the limit, or than the credits that are left and a refill. Repeating it is no use.',
    ),
    json: ({ spending }) => (spending?.needed === undefined ? '' : String(spending.needed)),
    value: ({ spending }) => spending?.needed,
  } satisfies VerdictField<number>,
  ratelimit: {
    schema: {
      type: 'object',
      description:
        'The limit that refuses the key, else the default limit, else the limit with the least left; absent if no limit applied.',
      properties: limitState,
    },
    json: ({ spending }) => (spending?.limits === undefined ? '' : limitJson(spending.limits)),
    value: ({ spending }) => spending?.limits && nearestValues(spending.limits),
  } satisfies VerdictField<LimitValues>,
  ratelimits: {
    schema: {
      type: 'array',
      description: 'All limits that applied to the verification.',
      items: {
        type: 'object',
        properties: {
          name: string('The name of the limit; that of the default limit is `default`.'),
          ...limitState,
          ...SHOWN_WINDOWS,
          exceeded: { type: 'boolean', description: 'True if the key was refused because of this limit.' },
        },
      },
    },
    json: ({ spending }) => (spending?.limits === undefined ? '' : limitsJson(spending.limits)),
    value: ({ spending }) => spending?.limits && namedLimits(spending),
  } satisfies VerdictField<readonly NamedLimitValues[]>,
  concurrency: {
    schema: {
      type: 'array',
      description: 'All concurrency limits that applied to the verification.',
      items: { type: 'object', properties: placeState },
    },
    json: ({ spending }) =>
      spending?.places === undefined ? '' : JSON.stringify(placeValues(spending.places)),
    value: ({ spending }) => spending?.places && placeValues(spending.places),
  } satisfies VerdictField<readonly PlaceValues[]>,
  hold: {
    schema: {
      type: 'object',
      description: 'The hold that the question asked for; absent if the key was refused.',
      properties: {
        id: string('What `keys.release` takes. Who has it can end the hold.'),
        expiresAt: number('When it ends by itself, in Unix milliseconds.'),
        credits: number('Credits that it took; only where the question says `atLeast`, like the next.'),
        ratelimits: {
          type: 'array',
          description: 'What it took of rate limits.',
          items: {
            type: 'object',
            properties: { name: string('The limit.'), cost: number('The amount.') },
          },
        },
      },
    },
    json: ({ hold }) => (hold === undefined ? '' : JSON.stringify(hold)),
    value: ({ hold }) => hold,
  } satisfies VerdictField<Hold>,
};

/** The fields that doors show elsewhere than in bodies: in a header for the API behind a gateway, and in the metadata of Envoy. */
export const DOOR_FIELDS = [
  { field: 'keyId', header: 'X-Key-Id', isInMetadata: true },
  { field: 'apiId', header: 'X-Key-Api-Id', isInMetadata: true },
  { field: 'name', header: 'X-Key-Name', isInMetadata: false },
  { field: 'externalId', header: 'X-Key-External-Id', isInMetadata: true },
  { field: 'environment', header: undefined, isInMetadata: true },
  { field: 'roles', header: undefined, isInMetadata: true },
  { field: 'permissions', header: undefined, isInMetadata: true },
] as const;

const placeValues = (places: readonly LimitOutcome[]): readonly PlaceValues[] =>
  places.map(({ limit: { name, limit }, remaining, exceeded }) => ({ name, limit, remaining, exceeded }));

const namedLimits = ({ limits = [] }: Spending): readonly NamedLimitValues[] =>
  limits.map(({ limit: { view }, ...state }) => ({ ...view, ...state }));

type Fields = typeof VERDICT_FIELDS;
type RequiredField = {
  [Name in keyof Fields]: Fields[Name] extends { isRequired: true } ? Name : never;
}[keyof Fields];
type Value<Name extends keyof Fields> = NonNullable<ReturnType<Fields[Name]['value']>>;

/** The values of the fields. */
export type VerdictValues = { readonly [Name in RequiredField]: Value<Name> } & {
  readonly [Name in Exclude<keyof Fields, RequiredField>]?: Value<Name>;
};

const ROWS: readonly (readonly [string, VerdictField<unknown>])[] = Object.entries(VERDICT_FIELDS);
const WRITERS = ROWS.map(([name, { json, isOfDetails }]) => ({
  label: flattenString(`,"${name}":`),
  json,
  isOfDetails,
}));
const PLAIN_WRITERS = WRITERS.filter(({ isOfDetails }) => !isOfDetails);

/** The names and types of the fields that are always present. */
export const REQUIRED_TYPES = ROWS.flatMap(([name, { isRequired, schema }]) =>
  isRequired ? [[name, (schema as { type: string }).type] as const] : [],
);

/** Returns the key's fields in an answer as JSON, each with a comma before it. */
function fieldsJson(verdict: VerdictWithKey): string {
  let all = '';
  for (const { label, json } of verdict.entry.details === undefined ? PLAIN_WRITERS : WRITERS) {
    const value = json(verdict);
    if (value !== '') all += label + value;
  }
  return all;
}

/** Returns the same fields as values. */
export function fieldValues(verdict: VerdictWithKey): VerdictValues {
  const all: Record<string, unknown> = {};
  for (const [name, { value }] of ROWS) {
    const fieldValue = value(verdict);
    if (fieldValue !== undefined) all[name] = fieldValue;
  }
  return all as VerdictValues;
}

/** Returns the body of a verifyKey response. */
export function verdictBody(verdict: Verdict, requestId: string): string {
  const start = STARTS[verdict.code];
  if (!showsKey(verdict)) return `${start},"requestId":"${requestId}"}`;
  const { entry, spending, hold } = verdict;
  // A fast path for most keys.
  return entry.details === undefined && entry.expires === 0 && spending === undefined && hold === undefined
    ? `${start},"keyId":"${entry.keyId}","apiId":"${entry.epoch.apiId}","enabled":${entry.enabled},"meta":{},"requestId":"${requestId}"}`
    : `${start}${fieldsJson(verdict)},"requestId":"${requestId}"}`;
}

/** The beginning of a body for each code. */
const STARTS = perVerdict(({ status }, code) => flattenString(`{"valid":${status === 200},"code":"${code}"`));

/** Returns the body of a verifyKey response in v2 of the interface. */
export function verdictBodyV2(verdict: Verdict, requestId: string): string {
  const start = `{"meta":{"requestId":"${requestId}"},"data":{${STARTS_V2[verdict.code]}`;
  if (!showsKey(verdict)) return `${start}}}`;
  const { entry, spending } = verdict;
  // A fast path for most keys.
  return entry.details === undefined && entry.expires === 0 && spending === undefined
    ? `${start},"keyId":"${entry.keyId}","enabled":${entry.enabled}}}`
    : `${start}${fieldsJsonV2(verdict)}}}`;
}

/** The beginning of `data` for each code. */
const STARTS_V2 = perVerdict(({ status }, code) =>
  // Clients of v2 know no other code for a limit.
  flattenString(
    `"valid":${status === 200},"code":"${code === 'CONCURRENCY_EXCEEDED' ? 'RATE_LIMITED' : code}"`,
  ),
);

/** Returns the identity for a key's `externalId`, if the shared log has no identity. */
const identityJson = memoize(({ externalId }: Details) =>
  externalId === '' ? '' : JSON.stringify({ id: identityIdOf(externalId), externalId }),
);

/** The fields of `data`, in order. A field has the same form as in v1, unless this table defines another. */
const FIELDS_V2 = {
  keyId: VERDICT_FIELDS.keyId,
  name: VERDICT_FIELDS.name,
  meta: {
    ...VERDICT_FIELDS.meta,
    json: ({ entry }: VerdictWithKey) => (entry.details?.meta === '{}' ? '' : (entry.details?.meta ?? '')),
  },
  expires: VERDICT_FIELDS.expires,
  credits: VERDICT_FIELDS.remaining,
  enabled: VERDICT_FIELDS.enabled,
  permissions: VERDICT_FIELDS.permissions,
  roles: VERDICT_FIELDS.roles,
  identity: {
    schema: { ...VERDICT_FIELDS.identity.schema, required: ['id', 'externalId'] },
    json: (verdict: VerdictWithKey) =>
      VERDICT_FIELDS.identity.json(verdict) ||
      (verdict.entry.details === undefined ? '' : identityJson(verdict.entry.details)),
  },
  ratelimits: {
    ...VERDICT_FIELDS.ratelimits,
    json: (verdict: VerdictWithKey) =>
      verdict.spending?.limits === undefined ? '' : limitsJsonV2(verdict, verdict.spending.limits),
  },
};

function limitsJsonV2(
  { entry, effectivePermissions }: VerdictWithKey,
  limits: readonly LimitOutcome[],
): string {
  let all = '';
  for (const { limit, remaining, reset, exceeded } of limits) {
    const isShared = effectivePermissions?.identity?.limits?.includes(limit) === true;
    const ownerId = isShared ? effectivePermissions?.identity?.id : entry.keyId;
    const id = `"id":"${ownerId}.${limit.name}","autoApply":${limit.isAutoApplied}`;
    all += `${all === '' ? '' : ','}${limit.label}${remaining},"reset":${reset},"exceeded":${exceeded},${id}}`;
  }
  return `[${all}]`;
}

const WRITERS_V2 = Object.entries(FIELDS_V2).map(([name, { json }]) => ({
  label: flattenString(`,"${name}":`),
  json,
}));

function fieldsJsonV2(verdict: VerdictWithKey): string {
  let all = '';
  for (const { label, json } of WRITERS_V2) {
    const value = json(verdict);
    if (value !== '') all += label + value;
  }
  return all;
}

const limitSchema = VERDICT_FIELDS.ratelimits.schema.items;
/** The JSON Schemas of the fields in `data`, besides `valid` and `code`. */
export const DATA_SCHEMAS = {
  ...Object.fromEntries(Object.entries(FIELDS_V2).map(([name, { schema }]) => [name, schema])),
  ratelimits: {
    ...VERDICT_FIELDS.ratelimits.schema,
    items: {
      ...limitSchema,
      properties: {
        ...limitSchema.properties,
        id: {
          type: 'string',
          description: "The id of the limit's owner (the key or its identity), and the name of the limit.",
        },
        autoApply: { type: 'boolean', description: 'True if the limit applies to every verification.' },
      },
    },
  },
};
