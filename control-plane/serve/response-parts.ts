import { Type } from 'typebox';
import { perUsageField } from '#shared/contract/usage.ts';
import { Id, List, Sequence, Time } from './schemas/field-schemas.ts';

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
  durable: Type.Boolean({ description: 'true: the change survives a crash or a failover of Redis.' }),
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
