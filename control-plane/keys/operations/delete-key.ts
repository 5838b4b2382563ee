import { recordNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, KeyId, WaitMs } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';
import { keyIdExample } from '../key-answer.ts';

export const deleteKey = operation({
  name: 'keys.deleteKey',
  summary: 'Delete a key for good',
  description: 'Returns when the deletion is complete, like updateKey.',
  permissions: ['api.<apiId>.delete_key'],
  request: Fields({ keyId: KeyId, waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'key.deleted',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: keyIdExample },
  neverShed: true,
  async handle(call, { keys, changeWriter }) {
    const { apiId } = call;
    const { keyId, waitMs } = call.request;
    const secretHash = await keys.secretHashOf(apiId, keyId);
    const write = { apiId, operation: 'delete', keyId, fields: {} } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange());
    if (!propagation) throw await recordNotFound(keys, apiId, keyId);
    if (secretHash) {
      await keys.forgetDeleted(apiId, [{ keyId, secretHash }]).catch((error: unknown) => {
        call.log.warn({ keyId, err: error }, 'pointers of a deleted key remain; they lead nowhere');
      });
    }
    return { propagation };
  },
});
