import { Type } from 'typebox';
import type { Clock } from '#shared/process/clock.ts';
import type { LogEntry } from '#shared/protocol/log/change-log-port.ts';
import type { ChangeWriter } from '#shared/protocol/writer/writer.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { hashSecret } from '#shared/rules/key-format.ts';
import { auditView } from '../../schema/audit-event.ts';
import { Propagation, propagationExample, WaitMs } from '../../schema/changes.ts';
import { Fields, Id, KeyId, OperationId, Secret } from '../../schema/primitives.ts';
import { recordNotFound } from '../../serve/authorization.ts';
import type { Call } from '../../serve/call.ts';
import { operation } from '../../serve/operation.ts';
import { keyIdExample } from '../key-answer.ts';
import type { Keys } from '../keys.ts';
import type { Successors } from '../successors.ts';

/** 100 years, in milliseconds. */
export const EXPIRATION_MAX = 3_155_760_000_000;
/** A time that is in the past on every clock: every verifier that has the change refuses the key. */
const ENDED_MS = 1;

export const rerollKey = operation({
  name: 'keys.rerollKey',
  kind: 'change',
  summary: 'Give a key a new secret',
  description:
    'Creates a key that replaces the old one: it has the same fields and draws on the same credits. The old key ends. Returns when that is complete, like updateKey: the new key is accepted everywhere, and with `expiration` 0 the old key nowhere. A key can be rerolled once; after that, reroll the new key.',
  permissions: ['api.<apiId>.update_key', 'api.<apiId>.create_key'],
  request: Fields({
    keyId: KeyId,
    expiration: Type.Integer({
      minimum: 0,
      maximum: EXPIRATION_MAX,
      description:
        'Time after which the old key ends, ms; it is refused sooner if it expires or is disabled. 0: it is refused as soon as the call returns.',
    }),
    operationId: Type.Optional(
      OperationId(
        'Your own name for this call. If no response arrived, repeat the call with the same name and `expiration` within an hour: it then replaces the undelivered key instead of creating a third one.',
      ),
    ),
    waitMs: WaitMs,
  }),
  response: Type.Object(
    {
      keyId: Id('the new key'),
      key: Secret,
      endsAt: Type.Optional(
        Type.Integer({
          description:
            'Unix milliseconds at which the old key ends at the latest; it is refused before if it is disabled. Absent with `expiration` 0: it has ended.',
        }),
      ),
      propagation: Propagation,
    },
    {
      examples: [
        {
          keyId: 'key_0mzc9m1q8r2wfXa1Bc2e',
          key: 'shop_7LkUX9rXq0bYt6yqkq7Z4o3dT1fWa',
          endsAt: 1_790_000_000_000,
          propagation: propagationExample,
        },
      ],
    },
  ),
  event: 'key.rotated',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: keyIdExample, expiration: 86_400_000 },
  adds: true,
  neverShed: true,
  async handle(
    call,
    {
      keys,
      successors,
      changeWriter,
      clock,
    }: { keys: Keys; successors: Successors; changeWriter: ChangeWriter; clock: Clock },
  ) {
    const { apiId } = call;
    const { keyId, expiration, operationId: ownName, waitMs } = call.request;
    // Store only a hash, in case a caller sends a secret by mistake.
    const name = call.draw?.name ?? (ownName && hashSecret(ownName));
    const operationId = name === undefined ? '' : `${name} ${expiration}`;
    const latestMs = expiration === 0 ? ENDED_MS : clock.wallMs() + expiration;
    const prepared = await successors.prepare(apiId, keyId);
    if (!prepared) throw await recordNotFound(keys, apiId, keyId);
    const successor = { ...prepared.successor, latestMs, operationId };
    call.intend(auditView({ x: String(latestMs) }));
    let entry: LogEntry | undefined;
    const write = { apiId, operation: 'update', keyId, fields: {}, successor } as const;
    const propagation = await changeWriter
      .apply(write, waitMs, (result) => {
        entry = result;
        recordReroll(call, keyId, successor.keyId, result);
      })
      .catch(async (error: unknown) => {
        // If the outcome is unknown, the key may exist.
        const isRefused = error instanceof ApiError && error.code !== 'SERVICE_UNAVAILABLE';
        if (isRefused) await successors.withdraw(apiId, prepared).catch(() => undefined);
        throw error;
      });
    if (!propagation || !entry) {
      await successors.withdraw(apiId, prepared).catch(() => undefined);
      throw await recordNotFound(keys, apiId, keyId);
    }
    await forgetDeleted(call, keys, entry);
    if (propagation.state !== 'complete' && !entry.replicated) {
      const advice = `send it again with the same operationId, or reroll ${successor.keyId} with expiration 0`;
      throw unavailable(`not all replicas confirmed the new key, so it is not shown; ${advice}`);
    }
    const endsAt = Number(entry.rerolled?.expires);
    return {
      keyId: successor.keyId,
      key: prepared.secret,
      ...(endsAt > ENDED_MS ? { endsAt } : {}),
      propagation,
    };
  },
});

/** Deletes the pointers of a key that a repeated call replaced. */
async function forgetDeleted({ apiId, log }: Call, keys: Keys, { rerolled }: LogEntry) {
  const { deleted } = rerolled ?? {};
  if (!deleted) return;
  await keys.forgetDeleted(apiId, [deleted]).catch((error: unknown) => {
    log.warn({ keyId: deleted.keyId, err: error }, 'pointers of a deleted key remain; they lead nowhere');
  });
}

/** Ends the turn, and records the outcome for both keys; the new key gets its own event. */
function recordReroll(call: Call, keyId: string, rerolledTo: string, entry: LogEntry): void {
  const { sequence, before, rerolled } = entry;
  call.giveTurnBack();
  const deleted = rerolled?.deleted === undefined ? {} : { deleted: rerolled.deleted.keyId };
  call.note(
    {},
    {
      sequence,
      before: auditView({ x: before?.x ?? '' }),
      after: { ...auditView({ x: rerolled?.expires ?? '' }), rerolledTo, ...deleted },
    },
  );
  call.recordWrite();
  void call.recordKeys([{ keyId: rerolledTo, outcome: 'OK', effect: { after: { rerolledFrom: keyId } } }]);
}

export const rerollOperations = [rerollKey] as const;
