import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { hashSecret } from '#shared/contract/key-format.ts';
import { recordNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, KeyId, OperationId, WaitMs } from '../../serve/request-parts.ts';
import { Propagation } from '../../serve/response-parts.ts';
import { CREDITS_OPERATION } from '../../serve/schemas/credit-schemas.ts';
import type { CreditsChange, LogEntry } from '../../writer/change-log-port.ts';
import { keyIdExample } from '../key-answer.ts';

export const updateRemaining = operation({
  name: 'keys.updateRemaining',
  summary: "Change a key's credits",
  description:
    'Returns when the change is complete, like updateKey: no verifier accepts a request on credits from before the change.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({
    keyId: KeyId,
    ...CREDITS_OPERATION,
    operationId: Type.Optional(
      OperationId(
        'Your own name for this change. If the call is repeated with it within an hour, the change is made once, and the first response is returned again.',
      ),
    ),
    waitMs: WaitMs,
  }),
  response: Type.Object({
    remaining: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()], {
      description:
        'Credits after the change; null = unlimited. Once the change is complete, the number is exact except for what verifiers spend meanwhile.',
    }),
    propagation: Propagation,
  }),
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: keyIdExample, op: 'increment', value: 100 },
  neverShed: true,
  async handle(call, { keys, credits, changeWriter }) {
    const { apiId } = call;
    const { keyId, op, value, operationId, waitMs } = call.request;
    // Store only a hash, in case a caller sends a secret by mistake.
    const operation = operationId === undefined ? {} : { operation: hashSecret(operationId) };
    const change = { ...changeOf(op, value), ...operation };
    let entry: LogEntry | undefined;
    const record = call.recordChange({}, change);
    const propagation = await changeWriter.apply(
      { apiId, operation: 'update', keyId, fields: {}, credits: change },
      waitMs,
      (result) => {
        entry = result;
        record(result);
      },
    );
    if (!propagation || !entry) throw await recordNotFound(keys, apiId, keyId);
    const { remaining = null, isOwed = false } = entry.credits ?? {};
    if (!isOwed || propagation.state !== 'complete') return { remaining, propagation };
    return { remaining: (await credits.settle(apiId, keyId)) ?? null, propagation };
  },
});

function changeOf(op: 'set' | 'increment' | 'decrement', value: number | null): CreditsChange {
  if (value !== null) return { op, value };
  if (op === 'set') return { op: 'none' };
  throw new ApiError('BAD_REQUEST', `value: must be a number if op is ${op}`);
}
