import { type TSchema, type TSchemaOptions, Type } from 'typebox';
import { nameTakenError } from '#shared/protocol/log/write-error.ts';
import { ANCHOR_SCHEMA, type Anchor as AnchorInput } from '#shared/protocol/records/calendar.ts';
import {
  CONCURRENCY_MAX,
  type ConcurrencyInput,
  type ConcurrencyLimit,
  DEFAULT_LIMIT,
  type DefaultLimit,
  LIMIT_FIELDS,
  LIMIT_NAME,
  LIMITS_MAX,
  type LimitInput,
  limitFault,
  type NamedLimit,
  type RateLimit,
  wholeNamedLimit,
} from '#shared/protocol/records/limit.ts';
import { ApiError } from '#shared/rules/errors.ts';

/** The size of a limit. */
export const LIMIT_SIZE = {
  limit: Type.Integer(LIMIT_FIELDS.limit.schema),
  duration: Type.Integer({
    ...LIMIT_FIELDS.duration.schema,
    description: 'Length of a window, milliseconds.',
  }),
};

export const Anchor = Type.Optional(Type.Unsafe<AnchorInput>(ANCHOR_SCHEMA));

/** Fields that answers always have. */
const ALWAYS = Object.keys(wholeNamedLimit({ name: '', limit: 1, duration: 1 }));
const strict = { additionalProperties: false } as const;

type Scope = 'key' | 'named' | 'role';
/** The fields of a limit: in the document, those of its name come first, and those of a role last. */
const ROWS = (['named', undefined, 'role'] as const).flatMap((scope) =>
  Object.entries<{ schema: object; view?: object; of?: string; isRequired?: boolean }>(LIMIT_FIELDS).filter(
    ([, { of }]) => of === scope,
  ),
);
const hasField = (scope: Scope, of?: string) =>
  of === undefined || scope === 'role' || (scope === 'named' && of === 'named');

const fieldsOf = (scope: Scope, isAnswer: boolean): Record<string, TSchema> =>
  Object.fromEntries(
    ROWS.filter(([, { of }]) => hasField(scope, of)).map(([name, { schema, view, isRequired }]) => {
      const field = Type.Unsafe((isAnswer && view) || schema);
      return [name, (isAnswer ? ALWAYS.includes(name) : isRequired) ? field : Type.Optional(field)];
    }),
  );
const limitSchema =
  <T>(isAnswer: boolean) =>
  (options: TSchemaOptions) =>
    Type.Unsafe<T>(Type.Object(fieldsOf('key', isAnswer), { ...strict, ...options }));
const listSchema =
  <T>(fields: Record<string, TSchema>) =>
  (options: TSchemaOptions) =>
    Type.Unsafe<readonly T[]>(Type.Array(Type.Object(fields, strict), { maxItems: LIMITS_MAX, ...options }));

/** Schema of a key's default limit. */
export const Ratelimit = limitSchema<LimitInput>(false);
export const RatelimitView = limitSchema<DefaultLimit>(true);

/** Schema of a key's other limits. */
export const Ratelimits = listSchema<Omit<NamedLimit, 'per'>>(fieldsOf('named', false));
export const RatelimitsView = listSchema<Omit<RateLimit, 'per'>>(fieldsOf('named', true));

/** Schema of a role's limits. */
export const RoleRatelimits = listSchema<NamedLimit>(fieldsOf('role', false));
export const RoleRatelimitsView = listSchema<RateLimit>(fieldsOf('role', true));

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
const { schema: per, view: perView } = LIMIT_FIELDS.per;

/** Schema of a key's concurrency limits. */
export const Concurrency = listSchema<Omit<ConcurrencyLimit, 'per'>>(places);

/** Schema of a role's concurrency limits. */
export const RoleConcurrency = listSchema<ConcurrencyInput>({
  ...places,
  per: Type.Optional(Type.Unsafe(per)),
});
export const RoleConcurrencyView = listSchema<ConcurrencyLimit>({
  ...places,
  per: Type.Optional(Type.Unsafe(perView)),
});

/** Throws BAD_REQUEST with the field and the rule, if there is a fault in a place. */
export function refuseFault(place: string, fault: string | undefined): void {
  if (fault) throw new ApiError('BAD_REQUEST', `${place}${fault}`);
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
  if (ratelimit) refuseFault('ratelimit.', limitFault(ratelimit));
  for (const [i, each] of (ratelimits ?? []).entries()) refuseFault(`ratelimits.${i}.`, limitFault(each));
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
