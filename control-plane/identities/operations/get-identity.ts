import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { IdentityView, identityNotFound, idIn, REFERENCE } from './identity.ts';

export const getIdentity = operation({
  name: 'identities.getIdentity',
  summary: 'Show an identity',
  description: 'Finds the identity by its id or its `externalId`.',
  permissions: ['root.*.read_identity'],
  request: Fields(REFERENCE),
  response: IdentityView,
  errors: ['NOT_FOUND'],
  example: { externalId: 'ada' },
  async handle({ request }, { identities }) {
    const identity = await identities.get(idIn(request));
    if (!identity) throw identityNotFound();
    return identity;
  },
});
