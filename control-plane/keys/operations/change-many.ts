import { Type } from 'typebox';
import type { StoredFields } from '#shared/contract/key-record.ts';
import { auditView } from '../../audit/audit-event.ts';
import { type AuditedKey, type Call, effectOf } from '../../serve/call.ts';
import { Propagation } from '../../serve/response-parts.ts';
import { Id, List, Sequence } from '../../serve/schemas/field-schemas.ts';
import type { Services } from '../../services.ts';
import type { Write } from '../../writer/change-log-port.ts';
import type { BatchEvents, ChangeOutcome, Propagation as Progress } from '../../writer/writer.ts';
import type { PointedKey } from '../keys.ts';
import type { KeyChoice } from './choice.ts';

/** Outcomes for many keys, and the propagation of the last change. */
interface ManyOutcomes {
  readonly outcomes: readonly ChangeOutcome[];
  readonly propagation?: Progress;
}

/** Schema of the outcomes for many keys. */
export const ManyResults = <Result extends string>(result: Result, example: object) =>
  Type.Object(
    {
      results: List(
        Type.Union([
          Type.Object({ result: Type.Literal(result), keyId: Id('the key'), sequence: Sequence }),
          Type.Object({
            result: Type.Literal('refused'),
            keyId: Id('the key'),
            code: Type.String({ description: 'NOT_FOUND: the API has no such key.' }),
            message: Type.String(),
          }),
        ]),
        { description: 'One outcome per key.' },
      ),
      propagation: Type.Optional(Propagation),
      cursor: Type.Optional(
        Type.String({ description: "Cursor for the identity's next keys; absent if there are none." }),
      ),
    },
    { examples: [example] },
  );

/** The response that `ManyResults` describes. */
export function manyResults<Result extends string>(
  result: Result,
  { outcomes, propagation }: ManyOutcomes,
  { cursor }: KeyChoice,
) {
  const results = outcomes.map(({ keyId, ...outcome }) => {
    if ('sequence' in outcome) return { result, keyId, sequence: outcome.sequence };
    const { code, message } = outcome.failure;
    return { result: 'refused' as const, keyId, code, message };
  });
  return {
    results,
    ...(propagation ? { propagation } : {}),
    ...(cursor === undefined ? {} : { cursor }),
  };
}

/**
 * Writes the change of each key, waits for all together, and notes them for the audit log.
 * @param fields the changes to each key; undefined = delete the keys
 */
export async function changeMany(
  call: Call,
  { changeWriter }: Pick<Services, 'changeWriter'>,
  { apiId, keyIds }: KeyChoice,
  fields: StoredFields | undefined,
  waitMs: number | undefined,
): Promise<ManyOutcomes> {
  const operation = fields ? 'update' : 'delete';
  const [first, ...others] = keyIds.map(
    (keyId): Write => ({ apiId, operation, keyId, fields: fields ?? {} }),
  );
  const after = fields && auditView(fields);
  const counts = { [`${operation}d`]: 0, refused: 0, unknown: 0 };
  const noteCounts = () => call.note({}, { after: { ...after, ...counts } });
  const record = (keys: readonly AuditedKey[]) => {
    void call.recordKeys(keys);
    noteCounts();
  };
  noteCounts();
  if (!first) return { outcomes: [] };
  const events: BatchEvents = {
    onWritten(changes) {
      counts[`${operation}d`] = (counts[`${operation}d`] ?? 0) + changes.length;
      record(
        changes.map(({ write: { keyId }, entry }) => ({
          keyId,
          outcome: 'OK',
          effect: effectOf(entry, after),
        })),
      );
    },
    onUnknown(writes) {
      counts.unknown += writes.length;
      record(
        writes.map(({ keyId }) => ({
          keyId,
          outcome: 'SERVICE_UNAVAILABLE',
          effect: after ? { after } : {},
        })),
      );
    },
    onEnd: () => call.giveTurnBack(),
  };
  const result = await changeWriter.applyAll([first, ...others], waitMs, events);
  counts.refused = result.outcomes.filter((each) => 'failure' in each).length;
  noteCounts();
  if (result.propagation) call.note({}, { sequence: result.propagation.sequence });
  return result;
}

/** Deletes keys like `changeMany`, and then the pointers that lead to them. */
export async function deleteMany(
  call: Call,
  { keys, changeWriter }: Pick<Services, 'keys' | 'changeWriter'>,
  choice: KeyChoice,
  waitMs: number | undefined,
): Promise<ManyOutcomes> {
  const { apiId, keyIds } = choice;
  const hashes = await keys.secretHashesOf(apiId, keyIds);
  const result = await changeMany(call, { changeWriter }, choice, undefined, waitMs);
  const deleted = result.outcomes.flatMap((each, i): PointedKey[] => {
    const secretHash = hashes[i];
    return 'sequence' in each && secretHash ? [{ keyId: each.keyId, secretHash }] : [];
  });
  await keys.forgetDeleted(apiId, deleted).catch((err: unknown) => {
    call.log.warn({ apiId, err }, 'pointers of deleted keys remain; they lead nowhere');
  });
  return result;
}
