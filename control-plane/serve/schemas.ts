import { hash } from 'node:crypto';
import {
  type Static,
  type TArrayOptions,
  type TNull,
  type TOptional,
  type TProperties,
  type TSchema,
  type TSchemaOptions,
  type TUnion,
  Type,
} from 'typebox';
import type { CreditsChange } from '#shared/protocol/log/change-log-port.ts';
import { nameTakenError } from '#shared/protocol/log/write-error.ts';
import {
  type Anchor as AnchorInput,
  CONCURRENCY_MAX,
  type ConcurrencyInput,
  CREDITS_MAX,
  DEFAULT_LIMIT,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  type Interval,
  LIMIT_MAX,
  LIMIT_NAME,
  LIMITS_MAX,
  type LimitInput,
  LONGEST_MS,
  type NamedLimit,
  type Refill as Plan,
  REFILL_PERIODS,
  refillText,
  THRESHOLD_MAX,
  THRESHOLDS_MAX,
} from '#shared/protocol/records/credits.ts';
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
import { perUsageField } from '#shared/protocol/records/usage.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { RANGES_MAX, rangeFault } from '#shared/rules/ip-ranges.ts';
import { ORIGIN_LENGTH_MAX, ORIGINS_MAX, originFault } from '#shared/rules/origins.ts';
import { API_ID, SLUG, SLUGS_MAX } from '#shared/rules/slugs.ts';
import { MOMENT_PATTERN, UNIX_MS_MIN } from '#shared/rules/unix-ms.ts';

export const Sequence = Type.Integer({
  minimum: 0,
  description: "The sequence number of a change in its API's log.",
});
export const Durable = Type.Boolean({
  description:
    'true: the change survives a crash or power cut of its Redis server, and a failover: the server has it on disk, all its replicas have it, and nothing is evicted.',
});
export const Time = (description: string) =>
  Type.Integer({ description: `${description}, Unix milliseconds.` });

export const List = <Item extends TSchema>(item: Item, options: TArrayOptions = {}) =>
  Type.Immutable(Type.Array(item, options));
export const Id = (thing: string) => Type.String({ description: `The id of ${thing}.` });
export const Cursor = Type.Optional(
  Type.String({ description: 'Cursor of the next page; absent on the last page.' }),
);

const Slug = (description: string) => Type.String({ pattern: SLUG.source, description });

/** Schema of a key's permissions. */
const Slugs = (options: TSchemaOptions) =>
  Type.Immutable(
    Type.Array(Slug('Letters, digits and `_:.*-`. `*` stands for itself.'), {
      maxItems: SLUGS_MAX,
      ...options,
    }),
  );

/**
 * Schema of permissions in calls about permissions: a slug, or an object as clients of the v1 SDK send it.
 */
export const GivenSlugs = (options: TSchemaOptions) =>
  Type.Array(
    Type.Union([
      Slug('The permission.'),
      Type.Object(
        {
          id: Type.Optional(Slug('The permission; takes precedence over `slug` and `name`.')),
          slug: Type.Optional(Slug('Another name of `name`, which it takes precedence over.')),
          name: Type.Optional(Slug('The same.')),
          create: Type.Optional(
            Type.Boolean({ description: 'No effect: permissions need not exist before they are used.' }),
          ),
        },
        { additionalProperties: false },
      ),
    ]),
    { maxItems: SLUGS_MAX, ...options },
  );

/** Returns the permissions that a call names. Throws BAD_REQUEST if one has no name. */
export function slugsIn(references: Static<ReturnType<typeof GivenSlugs>>): string[] {
  return references.map((reference, i) => {
    const slug =
      typeof reference === 'string' ? reference : (reference.id ?? reference.slug ?? reference.name);
    if (slug === undefined) throw new ApiError('BAD_REQUEST', `permissions.${i}: give its id, slug or name`);
    return slug;
  });
}

/** Longest spelling of a range: an IPv6 address with an IPv4 address at its end, and a length. */
const LENGTH_MAX = 49;

/** Schema of a list of addresses and ranges. `checkPlaces` checks each. */
const Ranges = (options: TSchemaOptions) =>
  Type.Immutable(
    Type.Array(Type.String({ minLength: 1, maxLength: LENGTH_MAX }), { maxItems: RANGES_MAX, ...options }),
  );

/** Schema of a list of origins. `checkPlaces` checks each. */
const OriginList = (options: TSchemaOptions) =>
  Type.Immutable(
    Type.Array(Type.String({ minLength: 1, maxLength: ORIGIN_LENGTH_MAX }), {
      maxItems: ORIGINS_MAX,
      ...options,
    }),
  );

/** Throws BAD_REQUEST that names the item of a key's lists of places, and the rule. */
export function checkPlaces(fields: {
  readonly allowedIps?: readonly string[] | null;
  readonly allowedOrigins?: readonly string[] | null;
}): void {
  const faultOf = { allowedIps: rangeFault, allowedOrigins: originFault };
  for (const name of ['allowedIps', 'allowedOrigins'] as const)
    for (const [i, place] of fields[name]?.entries() ?? []) {
      const fault = faultOf[name](place);
      if (fault !== undefined) throw new ApiError('BAD_REQUEST', `${name}.${i}: ${fault}`);
    }
}

/** The size of a limit. */
export const LIMIT_SIZE = {
  limit: Type.Integer({
    minimum: 1,
    maximum: LIMIT_MAX,
    description: 'Maximum number of verifications, or maximum total cost, in a window.',
  }),
  duration: Type.Integer({
    minimum: DURATION_MIN_MS,
    maximum: DURATION_MAX_MS,
    description: 'Length of a window, milliseconds.',
  }),
};
const ANCHOR = {
  day: Type.Optional(
    Type.Integer({
      ...{ minimum: 1, maximum: 31 },
      description: 'Only of months: the first day, default 1. A shorter month begins on its last day.',
    }),
  ),
  weekday: Type.Optional(
    Type.Integer({
      ...{ minimum: 1, maximum: 7 },
      description: 'Only of weeks: the first day, 1 = Monday, the default, to 7 = Sunday.',
    }),
  ),
  hour: Type.Optional(Type.Integer({ minimum: 0, maximum: 23, description: 'The hour, default 0.' })),
  offsetMinutes: Type.Optional(
    Type.Integer({
      ...{ minimum: -720, maximum: 840 },
      description: 'Minutes by which the local time is ahead of UTC, default 0.',
    }),
  ),
};
const Anchor = Type.Optional(
  Type.Object(ANCHOR, {
    additionalProperties: false,
    description: 'When a period begins; absent: at 00:00 UTC.',
  }),
);
const Thresholds = (description: string) =>
  Type.Immutable(
    Type.Array(Type.Integer({ minimum: 1, maximum: THRESHOLD_MAX }), {
      ...{ minItems: 1, maxItems: THRESHOLDS_MAX, description },
    }),
  );
const THRESHOLDS_TEXT =
  'per cent in ascending order, such as [80, 95]. Each time when so much is used, webhooks send';
/** The fields of a limit in answers. */
const limitView = {
  limit: LIMIT_SIZE.limit,
  duration: Type.Integer({
    minimum: DURATION_MIN_MS,
    maximum: DURATION_MAX_MS,
    description:
      'Length of a window, milliseconds. In answers also beside `interval`: the longest that a period can be.',
  }),
  interval: Type.Optional(
    Type.Union([Type.Literal('hour'), Type.Literal('day'), Type.Literal('week'), Type.Literal('month')], {
      description:
        'Instead of `duration`: a quota. Each period of the calendar has `limit`, and nothing of the period before counts in it.',
    }),
  ),
  anchor: Anchor,
  thresholds: Type.Optional(Thresholds(`Only with \`interval\`: ${THRESHOLDS_TEXT} \`quota.low\`.`)),
  async: Type.Boolean({
    description:
      'true (default): verifiers answer from slices of the limit and rarely ask Redis. false: they ask Redis each time. Neither lets more through than the limit.',
  }),
};
const strict = { additionalProperties: false } as const;

/** The fields of a limit in requests. */
const limit = {
  ...limitView,
  duration: Type.Optional(limitView.duration),
  async: Type.Optional(limitView.async),
};
const named = {
  name: Type.String({
    pattern: LIMIT_NAME.source,
    description: `The name by which verifications request this limit. Not \`${DEFAULT_LIMIT}\`, which is a key's own \`ratelimit\`.`,
  }),
  autoApply: Type.Optional(
    Type.Boolean({
      description:
        'true: each verification obeys it, and takes 1 of it unless it names the limit with another cost. false, the default: those that name it.',
    }),
  ),
};
const ofRole = {
  per: Type.Optional(
    Type.Union([Type.Literal('key'), Type.Literal('identity')], {
      description:
        'key, the default: each key with the role has the limit for itself. identity: all keys of one identity share it.',
    }),
  ),
};
const ofRoleView = { per: Type.Optional(Type.Literal('identity')) };
const limitsOf = <Properties extends TProperties>(fields: Properties, options: TSchemaOptions) =>
  Type.Immutable(Type.Array(Type.Object(fields, strict), { maxItems: LIMITS_MAX, ...options }));

/** Schema of a key's default limit. */
const Ratelimit = (options: TSchemaOptions) => Type.Object(limit, { ...strict, ...options });
const RatelimitView = (options: TSchemaOptions) => Type.Object(limitView, { ...strict, ...options });
/** Schema of a key's other limits. */
export const Ratelimits = (options: TSchemaOptions) => limitsOf({ ...named, ...limit }, options);
export const RatelimitsView = (options: TSchemaOptions) => limitsOf({ ...named, ...limitView }, options);
/** Schema of a role's limits. */
export const RoleRatelimits = (options: TSchemaOptions) =>
  limitsOf({ ...named, ...limit, ...ofRole }, options);
export const RoleRatelimitsView = (options: TSchemaOptions) =>
  limitsOf({ ...named, ...limitView, ...ofRoleView }, options);

const places = {
  name: Type.String({
    pattern: LIMIT_NAME.source,
    description: `A name that none of the rate limits beside it has. Not \`${DEFAULT_LIMIT}\`.`,
  }),
  limit: Type.Integer({
    minimum: 1,
    maximum: CONCURRENCY_MAX,
    description: 'Maximum number of holds at the same time.',
  }),
};
/** Schema of a key's concurrency limits. */
export const Concurrency = (options: TSchemaOptions) => limitsOf(places, options);
/** Schema of a role's concurrency limits. */
export const RoleConcurrency = (options: TSchemaOptions) => limitsOf({ ...places, ...ofRole }, options);
export const RoleConcurrencyView = (options: TSchemaOptions) =>
  limitsOf({ ...places, ...ofRoleView }, options);

/** Throws BAD_REQUEST if a limit has not either a `duration` or an `interval`, or an anchor that does not fit. */
function checkLimit(place: string, { duration, interval, anchor, thresholds }: LimitInput): void {
  if (interval === undefined && duration === undefined)
    throw new ApiError('BAD_REQUEST', `${place}.duration: give this or interval`);
  if (interval === undefined && anchor)
    throw new ApiError('BAD_REQUEST', `${place}.anchor: allowed only with interval`);
  if (interval === undefined && thresholds)
    throw new ApiError('BAD_REQUEST', `${place}.thresholds: allowed only with interval`);
  checkThresholds(`${place}.thresholds`, thresholds);
  if (interval === undefined) return;
  // Answers show the longest period, and may be sent back.
  if (duration !== undefined && duration !== LONGEST_MS[interval])
    throw new ApiError('BAD_REQUEST', `${place}.duration: give either this or interval`);
  checkAnchor(place, interval, anchor);
}

function checkThresholds(place: string, thresholds: readonly number[] = []): void {
  if (thresholds.some((percent, i) => i > 0 && percent <= (thresholds[i - 1] ?? 0)))
    throw new ApiError('BAD_REQUEST', `${place}: must be in ascending order, each once`);
}

function checkAnchor(place: string, interval: Interval, anchor: AnchorInput = {}): void {
  const { day, weekday, hour } = anchor;
  const wrong =
    day !== undefined && interval !== 'month'
      ? 'day: allowed only for months'
      : weekday !== undefined && interval !== 'week'
        ? 'weekday: allowed only for weeks'
        : hour !== undefined && interval === 'hour'
          ? 'hour: not allowed for hours; offsetMinutes moves their beginning'
          : undefined;
  if (wrong) throw new ApiError('BAD_REQUEST', `${place}.anchor.${wrong}`);
}

/**
 * Throws BAD_REQUEST if a limit has no size, if two have the same name, or if a named one has the name of the default
 * limit.
 */
export function checkLimits({
  ratelimit,
  ratelimits,
  concurrency,
}: {
  readonly ratelimit?: LimitInput | null | undefined;
  readonly ratelimits?: readonly NamedLimit[] | null | undefined;
  readonly concurrency?: readonly ConcurrencyInput[] | null | undefined;
}): void {
  if (ratelimit) checkLimit('ratelimit', ratelimit);
  for (const [i, each] of (ratelimits ?? []).entries()) checkLimit(`ratelimits.${i}`, each);
  const names = namesIn('ratelimits', ratelimits);
  // The change log compares the names with those that stay as they are.
  const sameName = namesIn('concurrency', concurrency).find((name) => names.includes(name));
  if (sameName !== undefined) throw nameTakenError(sameName);
}

function namesIn(field: string, limits: readonly { readonly name: string }[] | null | undefined): string[] {
  const names = (limits ?? []).map(({ name }) => name);
  if (names.includes(DEFAULT_LIMIT))
    throw new ApiError(
      'BAD_REQUEST',
      `${field}: must not name a limit ${DEFAULT_LIMIT}, which is the ratelimit of a key`,
    );
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) throw new ApiError('BAD_REQUEST', `${field}: must contain ${twice} only once`);
  return names;
}

const Credits = (minimum: number, description: string) =>
  Type.Integer({ minimum, maximum: CREDITS_MAX, description });

const Refill = Type.Object(
  {
    interval: Type.Union([Type.Literal('daily'), Type.Literal('weekly'), Type.Literal('monthly')]),
    amount: Credits(1, 'Number of credits after the refill; if more are left, they stay.'),
    refillDay: Type.Optional(
      Type.Union([Type.Integer({ minimum: 1, maximum: 31 }), Type.Null()], {
        description:
          'The day of a monthly refill, default 1; in shorter months, the last day. The same as `anchor.day`.',
      }),
    ),
    anchor: Anchor,
  },
  { additionalProperties: false, description: 'When the credits are refilled, and to what number.' },
);

const CreditThresholds = Thresholds(`Of the credits: ${THRESHOLDS_TEXT} \`credits.low\`.`);

/** Credits in a request of createKey. */
export const NEW_CREDITS = {
  remaining: Type.Optional(
    Credits(
      0,
      'Number of credits; each verification costs one, or the cost that it names. Absent: unlimited.',
    ),
  ),
  refill: Type.Optional(Refill),
  thresholds: Type.Optional(CreditThresholds),
};

/** Credits in a request of updateKey. */
export const CHANGED_CREDITS = {
  remaining: Type.Optional(
    Type.Union([Credits(0, 'The new number of credits.'), Type.Null()], {
      description: 'null: unlimited from now on.',
    }),
  ),
  refill: Type.Optional(Type.Union([Refill, Type.Null()], { description: 'null: no further refills.' })),
  thresholds: Type.Optional(Type.Union([CreditThresholds, Type.Null()], { description: 'null: none.' })),
};

/** Credits of a key in responses. */
export const CREDITS_VIEW = {
  remaining: Type.Optional(Type.Integer({ minimum: 0, description: 'Credits left. Absent: no limit.' })),
  refill: Type.Optional(
    Type.Object({
      interval: Type.Union([Type.Literal('daily'), Type.Literal('weekly'), Type.Literal('monthly')]),
      amount: Type.Integer(),
      refillDay: Type.Optional(Type.Integer()),
      anchor: Anchor,
      lastRefillAt: Type.Optional(Time('Time of the last refill')),
    }),
  ),
  thresholds: Type.Optional(CreditThresholds),
  remainingHeld: Type.Optional(
    Type.Integer({
      description: 'The part of `remaining` that verifiers hold, or have spent since their last report.',
    }),
  ),
  remainingLost: Type.Optional(
    Type.Integer({ description: 'Credits lost with crashed verifiers; not included in `remaining`.' }),
  ),
};

/**
 * Returns the credits that a request for something new sets; undefined = unlimited. Throws BAD_REQUEST that names the field
 * and the rule.
 * @param at beginning of the names of the fields
 */
export function newCredits(
  request: {
    readonly remaining?: number | undefined;
    readonly refill?: Static<typeof Refill> | undefined;
    readonly thresholds?: readonly number[] | undefined;
  },
  at = '',
): CreditsChange | undefined {
  const change = creditsChange(request, at);
  if (change?.op !== 'refill') return change;
  const field = request.refill ? 'refill' : 'thresholds';
  throw new ApiError('BAD_REQUEST', `${at}${field}: needs ${at}remaining; give both`);
}

/** Returns the change that a request makes; undefined = the credits stay as they are. Throws BAD_REQUEST. */
export function creditsChange(
  request: {
    readonly remaining?: number | null | undefined;
    readonly refill?: Static<typeof Refill> | null | undefined;
    readonly thresholds?: readonly number[] | null | undefined;
  },
  at = '',
): CreditsChange | undefined {
  const { remaining, refill, thresholds } = request;
  checkThresholds(`${at}thresholds`, thresholds ?? []);
  const texts = {
    ...(refill === undefined ? {} : { refill: refill ? textOf(refill, at) : '' }),
    ...(thresholds === undefined ? {} : { thresholds: thresholds?.join(' ') ?? '' }),
  };
  if (remaining === null) {
    for (const [name, text] of Object.entries(texts))
      if (text) throw new ApiError('BAD_REQUEST', `${at}${name}: must be absent if ${at}remaining is null`);
    return { op: 'none' };
  }
  if (remaining !== undefined) return { op: 'set', value: remaining, ...texts };
  return Object.keys(texts).length === 0 ? undefined : { op: 'refill', ...texts };
}

function textOf({ interval, amount, refillDay, anchor }: Static<typeof Refill>, at: string): string {
  const isDay = typeof refillDay === 'number';
  if (isDay && interval !== 'monthly')
    throw new ApiError('BAD_REQUEST', `${at}refill.refillDay: allowed only with the interval monthly`);
  if (isDay && anchor) throw new ApiError('BAD_REQUEST', `${at}refill.refillDay: give anchor.day instead`);
  checkAnchor(`${at}refill`, REFILL_PERIODS[interval], anchor);
  const plan: Plan = { interval, amount, ...(isDay ? { refillDay } : {}), ...(anchor ? { anchor } : {}) };
  return refillText(plan);
}

/** Rules of a role's name; it appears unescaped in JSON, and a list of names is separated by commas. */
export const ROLE_NAME = {
  pattern: '^[A-Za-z0-9_:.*-]+( [A-Za-z0-9_:.*-]+)*$',
  maxLength: 100,
};
/** Schema of a role's name. */
export const RoleName = Type.String({
  ...ROLE_NAME,
  description: 'A name that no other role has: letters, digits, `_:.*-`, and single spaces between them.',
});
export const ROLE_ID = /^role_[A-Za-z0-9_-]{1,75}$/;
/** Schema of a role's id. */
export const RoleId = Type.String({
  pattern: ROLE_ID.source,
  description: "A role's id, as createRole returned it.",
});

/** Schema of roles in calls about a key: a name, or an object as clients of the v1 SDK send it. */
export const GivenRoles = (options: TSchemaOptions) =>
  Type.Array(
    Type.Union([
      RoleName,
      Type.Object({ id: RoleId }, { additionalProperties: false }),
      Type.Object({ name: RoleName }, { additionalProperties: false }),
    ]),
    { maxItems: SLUGS_MAX, ...options },
  );

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

/** A role in a call about a key. */
export type GivenRole = Static<ReturnType<typeof GivenRoles>>[number];

/** Parts that requests have in common. */

/** Schema of a request that refuses unknown fields. */
export const Fields = <Properties extends TProperties>(fields: Properties) =>
  Type.Object(fields, { additionalProperties: false });

export const ApiId = Type.String({ pattern: API_ID.source, description: 'The API that keys belong to.' });
export const KeyId = Type.String({
  pattern: '^[A-Za-z0-9_-]{1,80}$',
  description: "A key's id, as createKey returned it.",
});
export const { name: Name, externalId: ExternalId, ownerId: OwnerId } = FIELDS;
/** The maximum wait for a change: `waitMs`. */
export const WaitMs = Type.Optional(
  Type.Integer({
    minimum: 0,
    maximum: 60_000,
    description: 'Maximum time to wait for the change to be complete, ms.',
  }),
);
/** The sequence of a thing's last change, in answers. */
export const LastSequence = Type.Integer({
  minimum: 0,
  description: 'The sequence of its last change, for `ifSequence`; 0 = it never changed.',
});
export const IfSequence = Type.Optional(
  Type.Integer({
    minimum: 0,
    maximum: Number.MAX_SAFE_INTEGER,
    description:
      'Make the change only if this is still the `sequence` of the last one, as you read it. If somebody was faster, the answer is 409 with the present sequence, and nothing is changed.',
  }),
);
/** A change's sequence in a query, where all values are strings. */
export const SequenceText = Type.String({
  pattern: '^[1-9][0-9]{0,14}$',
  description: 'The `sequence` in the response to the change.',
});

export const OperationId = (description: string) =>
  Type.String({ pattern: '^[A-Za-z0-9_-]{16,64}$', description });

export const Prefix = (description: string) => Type.String({ pattern: '^[A-Za-z0-9_]{1,16}$', description });
export const Bytes = (description: string) => Type.Integer({ minimum: 16, maximum: 255, description });

/** Number of items in a page, as a string in a query. */
export const Limit = (items: string) =>
  Type.String({
    pattern: '^([1-9][0-9]?|100)$',
    default: '100',
    description: `${items} per page, 1..100.`,
  });
export const PageCursor = (form: { pattern: string } | { minLength: number; maxLength: number }) =>
  Type.Optional(Type.String({ ...form, description: 'Cursor from the previous page.' }));

/** The text for which a listing is searched. */
export const Search = (where: string) =>
  Type.Optional(
    Type.String({ maxLength: 256, description: `Part of ${where}, in any case. \`''\` finds all.` }),
  );

/** A condition that a listing has only if it is given. */
export const Only = (items: string) =>
  Type.Optional(Type.Literal('true', { description: `true: only ${items}.` }));

export const Moment = (description: string) =>
  Type.Optional(Type.String({ pattern: MOMENT_PATTERN, description: `Unix milliseconds; ${description}` }));
/** Returns the Unix milliseconds of a `Moment`. */
export const timeOf = (ms: string | undefined) => (ms === undefined ? undefined : Number(ms));
/** The period of a usage report. */
export const period = {
  granularity: Type.Union([Type.Literal('hour'), Type.Literal('day')], {
    default: 'day',
    description: 'Hours and days are those of UTC.',
  }),
  start: Moment('default: as far back as counts are kept.'),
  end: Moment('default: now.'),
};

/** Parts that responses have in common, from which their serialisation and documentation are made. */

export const Count = (description: string) => Type.Integer({ minimum: 0, description });

export const Propagation = Type.Object({
  state: Type.Union([Type.Literal('complete'), Type.Literal('pending')], {
    description: 'complete: no verifier answers from the earlier state any more.',
  }),
  by: Type.Optional(
    Type.Union([Type.Literal('acks'), Type.Literal('fence')], {
      description:
        'acks: every verifier confirmed the change. fence: verifiers that did not can no longer answer.',
    }),
  ),
  sequence: Sequence,
  durable: Durable,
  verifiers: Type.Integer({ minimum: 0, description: 'Verifiers registered for the API.' }),
  waitedMs: Type.Number({ minimum: 0 }),
  completeBy: Type.Optional(
    Time('Only while pending: the latest time of completion, if Redis stays reachable'),
  ),
  laggards: Type.Optional(
    List(Type.String(), { description: 'The first 100 verifiers that have not confirmed the change.' }),
  ),
});
const complete = { state: 'complete', by: 'acks', durable: true, verifiers: 2 };
/** An example of a complete propagation. */
export const propagationExample = { ...complete, sequence: 7, waitedMs: 3.2 };
export const PropagationResponse = Type.Object(
  { propagation: Propagation },
  { examples: [{ propagation: propagationExample }] },
);

/** Body of updateRemaining, without the key or identity. */
export const CREDITS_OPERATION = {
  op: Type.Union([Type.Literal('set'), Type.Literal('increment'), Type.Literal('decrement')]),
  value: Type.Union([Credits(0, 'Credits.'), Type.Null()], {
    description: 'null, only with `set`: unlimited from now on. A decrement stops at 0.',
  }),
  operationId: Type.Optional(
    OperationId(
      'Your own name for this change. If the call is repeated with it within an hour, the change is made once, and the first response is returned again.',
    ),
  ),
  waitMs: WaitMs,
};
/** The answer to it. */
export const CreditsResponse = Type.Object({
  remaining: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()], {
    description:
      'Credits after the change; null = unlimited. Once the change is complete, the number is exact except for what verifiers spend meanwhile.',
  }),
  propagation: Propagation,
});

/** Permissions of a key or a role. */
export const Permissions = Type.Array(
  Type.Object({ id: Id('the permission: itself'), name: Type.String({ description: 'The same.' }) }),
  { description: 'All current permissions.', examples: [[{ id: 'files.read', name: 'files.read' }]] },
);

/** The secret of a new key. */
export const Secret = Type.String({
  description: 'The secret, which is shown only once and stored nowhere.',
});

/** Counts of verdicts. */
export const usageCounts = perUsageField(({ code, sentence }) =>
  Count(`Number of ${code} verdicts. ${sentence}`),
);

/** Number of characters that tell whether a cursor is whole and belongs to a listing. */
const SUM_LENGTH = 8;

/**
 * Encodes a place in a listing, which clients send back unchanged. They can decode it, so it may contain only
 * what the same caller may know anyway.
 * @param listing the name of the operation as clients call it, and everything that chooses what it lists
 */
export function makeCursor(listing: readonly [name: string, ...filter: unknown[]], place: string): string {
  return Buffer.from(sumOf(listing, place) + place).toString('base64url');
}

/**
 * Decodes a cursor and returns the matched groups of its place. Throws BAD_REQUEST if it is cut or belongs to another
 * listing.
 */
export function openCursor(
  listing: readonly [name: string, ...filter: unknown[]],
  cursor: string,
  place: RegExp,
  field = 'cursor',
): readonly string[] {
  const text = Buffer.from(cursor, 'base64url').toString();
  const match = place.exec(text.slice(SUM_LENGTH));
  if (!match || !text.startsWith(sumOf(listing, match[0])))
    throw new ApiError(
      'BAD_REQUEST',
      `${field}: must be one that ${listing[0]} returned for the same listing; begin without a cursor`,
    );
  return match.slice(1);
}

const sumOf = (listing: readonly unknown[], place: string) =>
  hash('sha256', JSON.stringify([listing, place]), 'base64url').slice(0, SUM_LENGTH);

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
 * NOT_FOUND for a caller who may not see every API: either there is no such thing, or a permission is
 * missing. Only the audit log says which. Both cases record an event; otherwise the response time would tell
 * them apart.
 */
export class MaskedNotFound extends ApiError {
  /** Outcome in the audit log. */
  readonly outcome: 'INSUFFICIENT_PERMISSIONS' | 'NOT_FOUND';

  constructor(message: string, outcome: MaskedNotFound['outcome']) {
    super('NOT_FOUND', message);
    this.outcome = outcome;
  }
}

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
