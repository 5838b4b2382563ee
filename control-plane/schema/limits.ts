import { type TProperties, type TSchemaOptions, Type } from 'typebox';
import { nameTakenError } from '#shared/protocol/log/write-error.ts';
import {
  type Anchor as AnchorInput,
  CONCURRENCY_MAX,
  type ConcurrencyInput,
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
  THRESHOLD_MAX,
  THRESHOLDS_MAX,
} from '#shared/protocol/records/credits.ts';
import { ApiError } from '#shared/rules/errors.ts';

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

export const Anchor = Type.Optional(
  Type.Object(ANCHOR, {
    additionalProperties: false,
    description: 'When a period begins; absent: at 00:00 UTC.',
  }),
);

export const Thresholds = (description: string) =>
  Type.Immutable(
    Type.Array(Type.Integer({ minimum: 1, maximum: THRESHOLD_MAX }), {
      ...{ minItems: 1, maxItems: THRESHOLDS_MAX, description },
    }),
  );

export const THRESHOLDS_TEXT =
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
export const Ratelimit = (options: TSchemaOptions) => Type.Object(limit, { ...strict, ...options });

export const RatelimitView = (options: TSchemaOptions) => Type.Object(limitView, { ...strict, ...options });

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

export function checkThresholds(place: string, thresholds: readonly number[] = []): void {
  if (thresholds.some((percent, i) => i > 0 && percent <= (thresholds[i - 1] ?? 0)))
    throw new ApiError('BAD_REQUEST', `${place}: must be in ascending order, each once`);
}

export function checkAnchor(place: string, interval: Interval, anchor: AnchorInput = {}): void {
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
