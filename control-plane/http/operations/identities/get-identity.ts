import { operation } from '../operation.ts';
import { Fields } from '../request-parts.ts';
import { IdentityView, identityNotFound, idIn, REFERENCE } from './identity.ts';

export const getIdentity = operation({
  name: 'identities.getIdentity',
  summary: 'Look at an identity',
  description: 'By its id, or by its `externalId`.',
  permissions: ['root.*.read_identity'],
  request: Fields(REFERENCE),
  response: IdentityView,
  errors: ['NOT_FOUND'],
  async handle({ request }, { identities }) {
    const identity = await identities.get(idIn(request));
    if (!identity) throw identityNotFound();
    return identity;
  },
});
