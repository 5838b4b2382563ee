import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, SequenceText } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';
import { IdentityId, identityIdExample, identityNotFound } from './identity.ts';

export const getIdentityPropagation = operation({
  name: 'identities.getIdentityPropagation',
  summary: "See how far an identity's change has come",
  description: 'For changes that returned `pending`.',
  permissions: ['root.*.read_identity'],
  request: Fields({ identityId: IdentityId, sequence: SequenceText }),
  response: PropagationResponse,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { identityId: identityIdExample, sequence: '1' },
  async handle({ request: { identityId, sequence } }, { changeWriter }) {
    const propagation = await changeWriter.status(SHARED_LOG, identityId, Number(sequence));
    if (!propagation) throw identityNotFound();
    return { propagation };
  },
});
