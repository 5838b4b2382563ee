import { Type } from 'typebox';
import { windowText } from '#shared/protocol/records/limit.ts';
import { Count, List, Time } from '../../core/schema/primitives.ts';
import type { AppliedLimit } from './applied-limits.ts';
import type { LimitView } from './limit-view.ts';

const From = Type.String({
  description: 'The record that has the limit: `key`, `identity`, or `role:` and the name of a role.',
});
const SharedBy = Type.Union([Type.Literal('key'), Type.Literal('identity')], {
  description: 'Uses count for this key alone, or for all keys of its identity together.',
});

/** The allowances of a key or an identity in responses. */
export const Allowances = Type.Object({
  at: Time('As of when this is told'),
  credits: Type.Optional(
    Type.Object(
      {
        remaining: Count('Credits left.'),
        of: Type.Optional(Count('Credits after a refill; absent = there are no refills.')),
        held: Count('The part of `remaining` that verifiers hold, or have spent since their last report.'),
        sharedBy: SharedBy,
      },
      { description: 'Absent: credits are not counted.' },
    ),
  ),
  limits: List(
    Type.Object({
      name: Type.String(),
      limit: Count('Uses allowed in a window.'),
      per: Type.String({ description: 'The window, such as `1m` or `month`.' }),
      used: Count('Uses in the current window. Those that verifiers took in advance count.'),
      resetsAt: Type.Optional(Time('When the window ends; absent = none has begun')),
      from: From,
      sharedBy: SharedBy,
    }),
  ),
  concurrency: List(
    Type.Object({
      name: Type.String(),
      limit: Count('Holds allowed at a time.'),
      inUse: Count('Holds at the time of the latest reports of verifiers.'),
      from: From,
      sharedBy: SharedBy,
    }),
  ),
});

/** Resolves with how much is used of limits and credits. */
export async function allowancesOf(
  applied: readonly AppliedLimit[],
  credits: {
    readonly remaining?: number;
    readonly remainingHeld?: number;
    readonly refill?: { readonly amount: number };
  },
  creditsSharedBy: 'key' | 'identity',
  { limits, nowMs }: { limits: LimitView; nowMs: number },
) {
  const { remaining, remainingHeld = 0, refill } = credits;
  const facts = ({ name, limit, of, space }: AppliedLimit) => ({
    ...{ name, limit, from: of.replace(/^role /, 'role:') },
    sharedBy: space === undefined ? ('identity' as const) : ('key' as const),
  });
  const [windows, places] = await Promise.all([
    Promise.all(
      applied
        .filter(({ duration }) => duration !== 0)
        .map(async (each) => {
          const { remaining, endsAt } = await limits.window(each.space, each, nowMs);
          const resetsAt = endsAt === undefined ? {} : { resetsAt: endsAt };
          return { ...facts(each), per: windowText(each), used: each.limit - remaining, ...resetsAt };
        }),
    ),
    Promise.all(
      applied
        .filter(({ duration }) => duration === 0)
        .map(async (each) => ({ ...facts(each), inUse: await limits.placesInUse(each.space, each) })),
    ),
  ]);
  return {
    at: Math.round(nowMs),
    ...(remaining === undefined
      ? {}
      : {
          credits: {
            ...{ remaining, held: Math.min(remaining, remainingHeld), sharedBy: creditsSharedBy },
            ...(refill ? { of: refill.amount } : {}),
          },
        }),
    ...{ limits: windows, concurrency: places },
  };
}
