import { Type } from 'typebox';
import { withoutAliases } from '../../serve/aliases.ts';
import { recordNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, KeyId, WaitMs } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';
import { CHANGED_CREDITS, creditsChange } from '../../serve/schemas/credit-schemas.ts';
import { CHANGES, keyIdExample, storedChanges } from '../key-answer.ts';

export const updateKey = operation({
  name: 'keys.updateKey',
  summary: 'Change, disable or enable a key',
  description:
    'Returns when the change is complete: from then on, no verifier anywhere answers from the earlier state. Absent fields stay unchanged; null clears a field.',
  permissions: ['api.<apiId>.update_key'],
  request: Fields({
    keyId: KeyId,
    enabled: Type.Optional(
      Type.Boolean({ description: 'false: the key is refused. true: it is accepted again.' }),
    ),
    ...CHANGES,
    ...CHANGED_CREDITS,
    waitMs: WaitMs,
  }),
  response: PropagationResponse,
  event: 'key.updated',
  errors: ['NOT_FOUND', 'CONFLICT', 'VERIFIERS_TOO_OLD'],
  example: { keyId: keyIdExample, enabled: false },
  neverShed: true,
  async handle(call, { keys, roles, changeWriter }) {
    const { apiId } = call;
    const { keyId, waitMs, remaining, refill, ...changes } = call.request;
    const fields = await storedChanges(roles, withoutAliases(changes));
    const credits = creditsChange({ remaining, refill });
    const propagation =
      Object.keys(fields).length === 0 && !credits
        ? await changeWriter.status(apiId, keyId, await keys.lastSequence(apiId, keyId), true)
        : await changeWriter.apply(
            { apiId, operation: 'update', keyId, fields, ...(credits ? { credits } : {}) },
            waitMs,
            call.recordChange(fields, credits),
          );
    if (!propagation) throw await recordNotFound(keys, apiId, keyId);
    return { propagation };
  },
});
