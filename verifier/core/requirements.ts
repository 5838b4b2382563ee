import {
  CREDITS_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  LIMIT_MAX,
  LIMIT_NAME,
  LIMITS_MAX,
} from '#shared/contract/credits.ts';
import { SLUG } from '#shared/contract/slugs.ts';
import { DEPTH_MAX, LEAVES_MAX, QUERY_LENGTH_MAX, type Query } from '#shared/permissions/permission-query.ts';
import {
  converted,
  type Form,
  list,
  object,
  optional,
  type Read,
  required,
  textLike,
  wholeNumber,
} from './form.ts';
import { type LimitRequirement, ownLimit } from './limits.ts';
import { readQuery } from './permissions.ts';

/** A requirement, with its names and forms in verifyKey bodies of v1 and v2 and in the library's options. */
interface Requirement<T, Option extends string = string> {
  readonly field: string;
  readonly inBody: Form<T>;
  readonly fieldV2: string;
  readonly inBodyV2: Form<T>;
  readonly option: Option;
  readonly inOptions: Form<T>;
  /** Converts the option's value to the field's. */
  readonly toField: (option: unknown) => unknown;
}

/** Returns a requirement with the same name in fields and options, except perhaps in v2 bodies. */
const sameName = <T, Option extends string>(
  option: Option,
  form: Form<T>,
  fieldV2: string = option,
): Requirement<T, Option> => ({
  ...{ field: option, inBody: form, fieldV2, inBodyV2: form, option, inOptions: form },
  toField: (value) => value,
});

/** Returns a requirement that is inside an object in the body. */
const within = <T, Option extends string>(
  field: string,
  description: string,
  option: Option,
  form: Form<T>,
  formV2: Form<T>,
): Requirement<T | undefined, Option> => ({
  field,
  inBody: optional(
    converted(object({ [option]: required(form) }, description), (outer) => outer[option] as T),
    undefined,
  ),
  fieldV2: option,
  inBodyV2: optional(formV2, undefined),
  option,
  inOptions: optional(form, undefined),
  toField: (value) => ({ [option]: value }),
});

const cost = converted(
  object(
    { cost: optional(wholeNumber(0, CREDITS_MAX, 'Credits to take; 0 checks without taking.'), 1) },
    'The cost of this verification, if the key has credits.',
  ),
  (remaining) => remaining.cost,
);

const limit: Form<LimitRequirement> = converted(
  object({
    name: textLike(LIMIT_NAME, 'The limit.'),
    cost: optional(wholeNumber(0, LIMIT_MAX, 'The amount that this verification takes.'), 1),
    limit: optional(wholeNumber(1, LIMIT_MAX, 'The maximum amount in a window.'), undefined),
    duration: optional(
      wholeNumber(DURATION_MIN_MS, DURATION_MAX_MS, 'Length of a window, in milliseconds.'),
      undefined,
    ),
  }),
  ({ name, cost, limit, duration }, place, { refuse }) => {
    if (limit === undefined && duration === undefined) return { name, cost };
    if (limit === undefined || duration === undefined)
      throw refuse(`${place}: limit and duration must be set together`);
    return { name, cost, own: ownLimit(name, limit, duration) };
  },
);

const limits = converted(
  list(
    limit,
    LIMITS_MAX,
    'Limits to apply besides those that always apply; 400 if the key has no limit of that name. `limit` and `duration`, together, define a limit that the key does not have.',
  ),
  (limitList: readonly LimitRequirement[], place, { refuse }) => {
    const names = limitList.map(({ name }) => name);
    const double = names.find((name, i) => names.indexOf(name) < i);
    if (double !== undefined) throw refuse(`${place}: must contain ${double} only once`);
    return limitList;
  },
);

const PERMISSIONS_TEXT = { type: 'string', minLength: 1, maxLength: QUERY_LENGTH_MAX };

const permissions: Form<Query> = {
  schema: {
    description: `A permission; \`{and: […]}\` or \`{or: […]}\` of others; or a text such as \`a AND (b OR c)\`, of at most ${QUERY_LENGTH_MAX} characters. At most ${LEAVES_MAX} permissions and ${DEPTH_MAX} levels. A permission matches \`${SLUG.source}\`, and only itself: \`*\` is no wildcard.`,
    oneOf: [
      PERMISSIONS_TEXT,
      ...['and', 'or'].map((name) => ({
        type: 'object',
        properties: {
          [name]: { type: 'array', minItems: 1, items: { description: 'A query of the same form.' } },
        },
        required: [name],
        additionalProperties: false,
      })),
    ],
  },
  read(value, place, { refuse }) {
    const read = readQuery(value);
    if ('fault' in read) throw refuse(`${place}: ${read.fault}`);
    return read.query;
  },
};

/** The form of a permission query that may only be text, as in v2 bodies. */
const permissionsText: Form<Query> = {
  schema: {
    ...PERMISSIONS_TEXT,
    description: `A permission, or a query such as \`a AND (b OR c)\`. The verdict is INSUFFICIENT_PERMISSIONS if the key lacks a permission.`,
  },
  read(value, place, reading) {
    if (typeof value !== 'string') throw reading.refuse(`${place}: must be a string`);
    return permissions.read(value, place, reading);
  },
};

/**
 * The only table of requirements. The readers of bodies and options, the client and the OpenAPI document are
 * derived from its rows.
 */
const REQUIREMENTS = {
  /** Cost in credits, if the key has credits. */
  cost: sameName('remaining', optional(cost, 1), 'credits'),
  /** Rate limits to apply besides those that always apply. */
  limits: sameName('ratelimits', optional(limits, [])),
  /** Permissions that the key must have; undefined = none. */
  permissions: within(
    'authorization',
    'Permissions that the key must have; if it lacks one, the verdict is INSUFFICIENT_PERMISSIONS.',
    'permissions',
    permissions,
    permissionsText,
  ),
};

type Rows = typeof REQUIREMENTS;
const ROWS = Object.entries(REQUIREMENTS) as [keyof Rows, Requirement<unknown>][];

/** The requirements in a question, beyond a valid key. */
export type Requirements = { readonly [Name in keyof Rows]: Read<Rows[Name]['inBody']> };

/** The name of an option with a requirement. */
export type RequirementOption = Rows[keyof Rows]['option'];

export const REQUIREMENT_OPTIONS = ROWS.map(([, { option }]) => option as RequirementOption);

/** The forms of the requirements, by name. */
export const REQUIREMENT_FORMS = {
  field: Object.fromEntries(ROWS.map(([, { field, inBody }]) => [field, inBody])),
  fieldV2: Object.fromEntries(ROWS.map(([, { fieldV2, inBodyV2 }]) => [fieldV2, inBodyV2])),
  option: Object.fromEntries(ROWS.map(([, { option, inOptions }]) => [option, inOptions])),
};

export const DEFAULT_REQUIREMENTS: Requirements = Object.freeze(
  Object.fromEntries(
    ROWS.map(([name, { inBody }]) => [
      name,
      inBody.read(undefined, '', { kind: 'field', refuse: (message) => new Error(message) }),
    ]),
  ) as Requirements,
);

/** Collects the requirements from a parsed body or parsed options. */
export function requirementsFrom(
  read: Readonly<Record<string, unknown>>,
  kind: keyof typeof REQUIREMENT_FORMS,
): Requirements {
  const nameIn = (row: Requirement<unknown>) => row[kind];
  if (ROWS.every(([name, row]) => read[nameIn(row)] === DEFAULT_REQUIREMENTS[name]))
    return DEFAULT_REQUIREMENTS;
  return Object.fromEntries(ROWS.map(([name, row]) => [name, read[nameIn(row)]])) as Requirements;
}

/**
 * Returns the default requirements with the permissions of a query. Throws the error from `refuse` if the
 * query is invalid.
 */
export function requiring(query: unknown, refuse: (fault: string) => Error): Requirements {
  const read = readQuery(query);
  if ('fault' in read) throw refuse(read.fault);
  return { ...DEFAULT_REQUIREMENTS, permissions: read.query };
}

/** Returns the request-body fields for the requirements in `options`. */
export const requirementFields = (options: Readonly<Partial<Record<RequirementOption, unknown>>>): object =>
  Object.fromEntries(
    ROWS.flatMap(([, { field, option, toField }]) => {
      const value = options[option as RequirementOption];
      return value === undefined ? [] : [[field, toField(value)]];
    }),
  );
