import { type Static, Type } from 'typebox';
import { CREDITS_MAX } from '#shared/protocol/records/credits.ts';
import { DEFAULT_LIMIT, LIMIT_NAME, LIMITS_MAX } from '#shared/protocol/records/limit.ts';
import { ApiError } from '#shared/rules/errors.ts';
import type { Key } from '../core/records/key-view.ts';
import { LIMIT_SIZE } from '../core/schema/limits.ts';
import { List } from '../core/schema/primitives.ts';

/** Rate limits and credits in version 2 of the interface. */

const limit = {
  name: Type.String({
    pattern: LIMIT_NAME.source,
    description: 'The name by which verifications request the limit.',
  }),
  ...LIMIT_SIZE,
};
export const GivenRatelimits = Type.Array(
  Type.Object(
    {
      ...limit,
      autoApply: Type.Boolean({
        default: false,
        description: 'true: the limit applies to every verification. false: only to those that name it.',
      }),
    },
    { additionalProperties: false },
  ),
  // The limit named `default` is stored separately.
  { maxItems: LIMITS_MAX + 1, description: 'All rate limits; `[]` removes all.' },
);
type GivenRatelimits = Static<typeof GivenRatelimits>;

export const RatelimitsSchema = List(
  Type.Object({
    id: Type.String({ description: "The owner's id and the limit's name." }),
    ...limit,
    autoApply: Type.Boolean({ description: 'true: the limit applies to every verification.' }),
  }),
);

/** Translates the limits of a key into the operations' fields. Throws BAD_REQUEST. */
export function limitFields(limits: GivenRatelimits) {
  const first = limits.find(({ name }) => name === DEFAULT_LIMIT);
  if (first && !first.autoApply)
    throw new ApiError(
      'BAD_REQUEST',
      `ratelimits: ${DEFAULT_LIMIT} is always obeyed; set its autoApply to true`,
    );
  const { limit = 0, duration = 0 } = first ?? {};
  const ratelimits = limits.filter((each) => each !== first);
  return { ratelimit: first ? { limit, duration } : null, ratelimits };
}

/** Translates the limits of a new key into the operations' fields. Throws BAD_REQUEST. */
export function newLimitFields(limits: GivenRatelimits) {
  const { ratelimit, ratelimits } = limitFields(limits);
  return { ...(ratelimit ? { ratelimit } : {}), ratelimits };
}

/** Translates the limits of an identity into the operations' fields. Throws BAD_REQUEST. */
export function identityLimits(limits: GivenRatelimits) {
  if (limits.some(({ name }) => name === DEFAULT_LIMIT))
    throw new ApiError(
      'BAD_REQUEST',
      `ratelimits: ${DEFAULT_LIMIT} is a limit of one key; give the limit of an identity another name`,
    );
  return limits;
}

/** Returns limits as responses show them. */
export function limitsView(
  ownerId: string,
  { ratelimit, ratelimits }: Pick<Key, 'ratelimit' | 'ratelimits'>,
) {
  const first = ratelimit ? [{ ...ratelimit, name: DEFAULT_LIMIT, autoApply: true }] : [];
  return [...first, ...(ratelimits ?? [])].map(({ name, limit, duration, ...more }) => ({
    ...{ id: `${ownerId}.${name}`, name, limit, duration },
    autoApply: 'autoApply' in more && more.autoApply === true,
  }));
}

const refill = {
  interval: Type.Union([Type.Literal('daily'), Type.Literal('monthly')], { description: 'At 00:00 UTC.' }),
  amount: Type.Integer({
    ...{ minimum: 1, maximum: CREDITS_MAX },
    description: 'Number of credits after the refill.',
  }),
  refillDay: Type.Optional(
    Type.Integer({
      ...{ minimum: 1, maximum: 31 },
      description: 'The day of a monthly refill, default 1; in shorter months, the last day.',
    }),
  ),
};
const GivenRefill = Type.Object(refill, { additionalProperties: false });
const Remaining = Type.Union([Type.Integer({ minimum: 0, maximum: CREDITS_MAX }), Type.Null()], {
  description: 'Number of credits; null = unlimited.',
});

export const GivenCredits = Type.Object(
  { remaining: Remaining, refill: Type.Optional(GivenRefill) },
  { additionalProperties: false },
);
export const ChangedCredits = Type.Union([
  Type.Object(
    {
      remaining: Type.Optional(Remaining),
      refill: Type.Optional(Type.Union([GivenRefill, Type.Null()])),
    },
    { additionalProperties: false },
  ),
  Type.Null(),
]);
/** A change of credits, without the key. */
export const CreditsOperation = {
  operation: Type.Union([Type.Literal('set'), Type.Literal('increment'), Type.Literal('decrement')]),
  value: Type.Optional(
    Type.Union([Type.Integer({ minimum: 0, maximum: CREDITS_MAX }), Type.Null()], {
      description:
        'Credits; null or absent, for `set` only: as many as are asked for. A decrement ends at 0.',
    }),
  ),
};
export const CreditsSchema = Type.Object({
  remaining: Remaining,
  refill: Type.Optional(Type.Object(refill)),
});

/** Translates new credits into the operations' fields. */
export function newCreditFields(credits: Static<typeof GivenCredits> | undefined) {
  const { remaining = null, refill: plan } = credits ?? {};
  return { ...(remaining === null ? {} : { remaining }), ...(plan ? { refill: plan } : {}) };
}

/** Translates changed credits into the operations' fields; null removes the limit on use. */
export function changedCreditFields(credits: Static<typeof ChangedCredits> | undefined) {
  return credits === null ? { remaining: null } : (credits ?? {});
}

/** Returns credits as responses show them; empty if use is unlimited. */
export function creditsView({ remaining, refill: plan }: Pick<Key, 'remaining' | 'refill'>) {
  if (remaining === undefined) return {};
  const { interval, amount, refillDay = plan?.anchor?.day } = plan ?? {};
  if (!interval || !amount || interval === 'weekly') return { credits: { remaining } };
  return {
    credits: { remaining, refill: { interval, amount, ...(refillDay === undefined ? {} : { refillDay }) } },
  };
}
