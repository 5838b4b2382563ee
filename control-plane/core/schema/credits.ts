import { type Static, Type } from 'typebox';
import type { CreditsChange } from '#shared/protocol/log/change-log-port.ts';
import { anchorFault } from '#shared/protocol/records/calendar.ts';
import {
  CREDITS_MAX,
  type Refill as Plan,
  REFILL_PERIODS,
  refillText,
  type Thresholds,
  thresholdsFault,
  thresholdsSchema,
} from '#shared/protocol/records/credits.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { Propagation, WaitMs } from './changes.ts';
import { Anchor, refuseFault } from './limits.ts';
import { OperationId, Time } from './primitives.ts';

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

const CreditThresholds = Type.Unsafe<Thresholds>(thresholdsSchema('Of the credits', 'credits.low'));

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
  refuseFault(at, thresholdsFault(thresholds ?? []));
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
  refuseFault(`${at}refill.`, anchorFault(REFILL_PERIODS[interval], anchor));
  const plan: Plan = { interval, amount, ...(isDay ? { refillDay } : {}), ...(anchor ? { anchor } : {}) };
  return refillText(plan);
}

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
