import { Type } from 'typebox';
import { Durable, List, Sequence, Time } from './primitives.ts';

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

export const Propagation = Type.Object({
  state: Type.Union([Type.Literal('complete'), Type.Literal('pending')], {
    description: 'complete: no verifier answers from the earlier state any more.',
  }),
  tokens: Type.Optional(
    Type.Union([Type.Literal('complete'), Type.Literal('pending')], {
      description:
        'Only where the API has tokens. pending: a token from before the change may be valid. Then `state` is pending too; `by` tells if verifiers are complete.',
    }),
  ),
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
  overtakenBy: Type.Optional(
    Type.Integer({
      minimum: 1,
      description:
        'Present if the record was not as this call asked when it was answered: the `sequence` of the later change, such as an enable that another control plane wrote after this disable.',
    }),
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
