import { Type } from 'typebox';

/** Every answer's shape: the single source of its serialisation and its documentation. */

const Sequence = Type.Integer({ minimum: 0, description: "A change's place in its API's log." });
const Time = (description: string) => Type.Integer({ description: `${description}, Unix milliseconds.` });

const FollowedApi = Type.Object({
  apiId: Type.String(),
  member: Type.String({
    description: 'The name that `propagation.laggards` gives, should it hold a change up.',
  }),
  state: Type.Union([Type.Literal('live'), Type.Literal('fenced'), Type.Literal('joining')], {
    description:
      'live: answers from memory. fenced: its lease ran out. joining: not in sync yet, or not any more.',
  }),
  position: Sequence,
  lag: Type.Integer({ minimum: 0, description: 'Changes that it knows of and has not applied.' }),
  leaseRemainingMs: Type.Integer({
    minimum: 0,
    description: 'How much longer it may answer from memory without hearing from Redis, ms.',
  }),
});

/** A verifier as it reported itself; `VerifierStatus` is its type. */
export const Verifier = Type.Object({
  id: Type.String({
    pattern: '^verifier_[0-9A-Za-z]{20}$',
    description: 'Of this process; ids sort by start.',
  }),
  host: Type.String({ maxLength: 256 }),
  version: Type.String({ maxLength: 64 }),
  startedAt: Time('When it started'),
  reportedAt: Time('When it said all this'),
  verdicts: Type.Object(
    { memory: Type.Integer({ minimum: 0 }), redis: Type.Integer({ minimum: 0 }) },
    { description: 'Verdicts since its start; the hit rate is memory ÷ both.' },
  ),
  keysInMemory: Type.Integer({ minimum: 0 }),
  apis: Type.Array(FollowedApi, { maxItems: 100, description: 'Those in trouble first.' }),
  apisNotShown: Type.Integer({ minimum: 0, description: 'Followed APIs beyond those.' }),
});
