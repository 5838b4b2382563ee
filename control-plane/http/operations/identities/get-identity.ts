import { IdentityData, IdentityName, identityData, identityIdIn } from '../../../unkey-v2/identity-data.ts';
import { operation } from '../operation.ts';
import { Fields } from '../request-parts.ts';
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
  v2: {
    request: Fields({ identity: IdentityName }),
    data: IdentityData,
    example: { identity: 'ada' },
    toRequest: async ({ identity }, { identities }) => ({
      identityId: await identityIdIn(identity, identities),
    }),
    toAnswer: (identity) => ({ data: identityData(identity) }),
  },
  async handle({ request }, { identities }) {
    const identity = await identities.get(idIn(request));
    if (!identity) throw identityNotFound();
    return identity;
  },
});
