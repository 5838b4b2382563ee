import { type Static, Type } from 'typebox';
import { CREDITS_MAX, type Refill as Plan, refillText } from '#shared/contract/credits.ts';
import { ApiError } from '#shared/contract/errors.ts';
import type { CreditsChange } from '../../writer/change-log-port.ts';
import { Time } from './field-schemas.ts';

const Credits = (minimum: number, description: string) =>
  Type.Integer({ minimum, maximum: CREDITS_MAX, description });

const Refill = Type.Object(
  {
    interval: Type.Union([Type.Literal('daily'), Type.Literal('monthly')], {
      description: 'At 00:00 UTC.',
    }),
    amount: Credits(1, 'Number of credits after the refill; if more are left, they stay.'),
    refillDay: Type.Optional(
      Type.Union([Type.Integer({ minimum: 1, maximum: 31 }), Type.Null()], {
        description: 'The day of a monthly refill, default 1; in shorter months, the last day.',
      }),
    ),
  },
  { additionalProperties: false, description: 'When the credits are refilled, and to what number.' },
);

/** Credits in a request of createKey. */
export const NEW_CREDITS = {
  remaining: Type.Optional(
    Credits(
      0,
      'Number of credits; each verification costs one, or the cost that it names. Absent: unlimited.',
    ),
  ),
  refill: Type.Optional(Refill),
};

/** Credits in a request of updateKey. */
export const CHANGED_CREDITS = {
  remaining: Type.Optional(
    Type.Union([Credits(0, 'The new number of credits.'), Type.Null()], {
      description: 'null: unlimited from now on.',
    }),
  ),
  refill: Type.Optional(Type.Union([Refill, Type.Null()], { description: 'null: no further refills.' })),
};

/** Body of updateRemaining, without the key. */
export const CREDITS_OPERATION = {
  op: Type.Union([Type.Literal('set'), Type.Literal('increment'), Type.Literal('decrement')]),
  value: Type.Union([Credits(0, 'Credits.'), Type.Null()], {
    description: 'null, only with `set`: unlimited from now on. A decrement stops at 0.',
  }),
};

/** Credits of a key in responses. */
export const CREDITS_VIEW = {
  remaining: Type.Optional(Type.Integer({ minimum: 0, description: 'Credits left. Absent: no limit.' })),
  refill: Type.Optional(
    Type.Object({
      interval: Type.Union([Type.Literal('daily'), Type.Literal('monthly')]),
      amount: Type.Integer(),
      refillDay: Type.Optional(Type.Integer()),
      lastRefillAt: Type.Optional(Time('Time of the last refill')),
    }),
  ),
  remainingHeld: Type.Optional(
    Type.Integer({
      description: 'The part of `remaining` that verifiers hold, or have spent since their last report.',
    }),
  ),
  remainingLost: Type.Optional(
    Type.Integer({ description: 'Credits lost with crashed verifiers; not included in `remaining`.' }),
  ),
};

/** Credits that a key is created with. */
export interface NewCredits {
  readonly value: number;
  /** The refill as it is stored; `''` = none. */
  readonly refill: string;
}

/** Returns the credits that a request sets. Throws BAD_REQUEST that names the field and the rule. */
export function newCredits(request: {
  readonly remaining?: number | undefined;
  readonly refill?: Static<typeof Refill> | undefined;
}): NewCredits | undefined {
  const { remaining, refill } = request;
  if (remaining !== undefined) return { value: remaining, refill: refill ? textOf(refill) : '' };
  if (refill) throw new ApiError('BAD_REQUEST', 'refill: needs remaining; give both');
  return undefined;
}

/**
 * Returns the change that an updateKey request makes; undefined = the credits stay as they are. Throws
 * BAD_REQUEST.
 */
export function creditsChange(request: {
  readonly remaining?: number | null | undefined;
  readonly refill?: Static<typeof Refill> | null | undefined;
}): CreditsChange | undefined {
  const { remaining, refill } = request;
  const text = refill === undefined ? undefined : refill === null ? '' : textOf(refill);
  if (remaining === null) {
    if (refill) throw new ApiError('BAD_REQUEST', 'refill: must be absent if remaining is null');
    return { op: 'none' };
  }
  if (remaining === undefined) return text === undefined ? undefined : { op: 'refill', refill: text };
  return { op: 'set', value: remaining, ...(text === undefined ? {} : { refill: text }) };
}

function textOf({ interval, amount, refillDay }: Static<typeof Refill>): string {
  if (interval === 'daily' && typeof refillDay === 'number')
    throw new ApiError('BAD_REQUEST', 'refill.refillDay: allowed only with the interval monthly');
  const plan: Plan = { interval, amount, ...(typeof refillDay === 'number' ? { refillDay } : {}) };
  return refillText(plan);
}
