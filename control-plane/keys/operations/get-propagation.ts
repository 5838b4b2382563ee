import { recordNotFound } from '../../serve/authorization.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, KeyId, SequenceText } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';
import { keyIdExample } from '../key-answer.ts';

export const getPropagation = operation({
  name: 'keys.getPropagation',
  summary: 'See how far a change has come',
  description: 'For changes that returned `pending`.',
  permissions: ['api.<apiId>.read_key'],
  request: Fields({ keyId: KeyId, sequence: SequenceText }),
  response: PropagationResponse,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { keyId: keyIdExample, sequence: '1' },
  async handle({ apiId, request: { keyId, sequence } }, { keys, changeWriter }) {
    const propagation = await changeWriter.status(apiId, keyId, Number(sequence));
    if (!propagation) throw await recordNotFound(keys, apiId, keyId);
    return { propagation };
  },
});
