import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, WaitMs } from '../../serve/request-parts.ts';
import { PropagationResponse } from '../../serve/response-parts.ts';
import { IdentityId, identityIdExample, identityNotFound } from './identity.ts';

export const deleteIdentity = operation({
  name: 'identities.deleteIdentity',
  summary: 'Delete an identity',
  description:
    'The keys stay, with their own `enabled`. A disabled identity cannot be deleted, because its keys would be accepted again.',
  permissions: ['root.*.delete_identity'],
  request: Fields({ identityId: IdentityId, waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'identity.deleted',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { identityId: identityIdExample },
  neverShed: true,
  async handle(call, { identities, changeWriter }) {
    const { identityId: keyId, waitMs } = call.request;
    const condition = await identities.toDelete(keyId);
    if (condition === undefined) throw identityNotFound();
    const write = { apiId: SHARED_LOG, operation: 'delete', keyId, fields: {}, condition } as const;
    const propagation = await changeWriter.apply(write, waitMs, call.recordChange());
    if (!propagation) throw identityNotFound();
    return { propagation };
  },
});
