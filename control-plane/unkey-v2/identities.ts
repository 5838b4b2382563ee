import { type Static, Type } from 'typebox';
import { KEY_FIELDS } from '#shared/protocol/records/key-record.ts';
import { identityIdOf } from '#shared/rules/key-format.ts';
import { ExternalId, FIELDS } from '../core/schema/key-fields.ts';
import { Fields, Id, List } from '../core/schema/primitives.ts';
import type { Identities, Identity } from '../subjects/identities/identities.ts';
import {
  createIdentity,
  deleteIdentity,
  getIdentity,
  IDENTITY_ID,
  listIdentities,
  updateIdentity,
} from '../subjects/identities/operations.ts';
import { DELETED, inV2, onceComplete, PAGE, pagination } from './face.ts';
import { GivenRatelimits, identityLimits, limitsView, RatelimitsSchema } from './limits-and-credits.ts';

const { meta } = FIELDS;
/** The fields of an identity in requests. */
const NEW_FIELDS = { meta: Type.Optional(meta), ratelimits: Type.Optional(GivenRatelimits) };

const IdentityName = Type.String({
  ...{ minLength: 1, maxLength: KEY_FIELDS.externalId.lengthMax },
  description:
    "Its id, or its `externalId`. Where it is one identity's id and the `externalId` of another, the id counts.",
});

const IdentityData = Type.Object({
  id: Id('the identity'),
  externalId: Type.String({ description: "The identity's id in the caller's own system." }),
  meta: Type.Optional(meta),
  ratelimits: Type.Optional(RatelimitsSchema),
});

/** Translates an identity from an operation's response into this form. */
function identityData({
  id,
  externalId,
  meta = {},
  ratelimits = [],
}: Pick<Identity, 'id' | 'externalId'> & Partial<Identity>): Static<typeof IdentityData> {
  const limits = limitsView(id, { ratelimits });
  return {
    ...{ id, externalId },
    ...(Object.keys(meta).length > 0 ? { meta } : {}),
    ...(limits.length > 0 ? { ratelimits: limits } : {}),
  };
}

/**
 * Returns the id of an identity that a request names by id or by external id. The identity need not exist.
 */
async function identityIdIn(name: string, identities: Identities): Promise<string> {
  const ofExternalId = identityIdOf(name);
  if (!IDENTITY_ID.test(name)) return ofExternalId;
  if (await identities.get(name)) return name;
  return (await identities.get(ofExternalId)) ? ofExternalId : name;
}

/** The request of an operation on one identity. */
const THE_IDENTITY = {
  request: Fields({ identity: IdentityName }),
  example: { identity: 'ada' },
  toRequest: async (
    { identity }: { readonly identity: string },
    { identities }: { identities: Identities },
  ) => ({
    identityId: await identityIdIn(identity, identities),
  }),
};

export const identityFaces = [
  inV2(createIdentity, {
    request: Fields({ externalId: ExternalId, ...NEW_FIELDS }),
    data: Type.Object({ identityId: Id('the identity') }),
    example: createIdentity.example,
    toRequest: ({ ratelimits = [], ...fields }) => ({
      ...{ ...fields, enabled: true, ratelimits: identityLimits(ratelimits) },
    }),
    toAnswer({ identityId, propagation }) {
      onceComplete(propagation, 'updateIdentity with the same fields waits for it');
      return { data: { identityId } };
    },
  }),
  inV2(getIdentity, {
    ...THE_IDENTITY,
    data: IdentityData,
    toAnswer: (identity) => ({ data: identityData(identity) }),
  }),
  inV2(listIdentities, {
    request: Fields({ ...PAGE, search: listIdentities.request.properties.search }),
    data: List(IdentityData),
    paged: true,
    example: { limit: 100, search: 'ada' },
    toRequest: ({ limit, ...query }) => ({ ...query, limit: String(limit) }),
    toAnswer: ({ identities, cursor }) => ({
      ...{ data: identities.map(identityData), pagination: pagination(cursor) },
    }),
  }),
  inV2(updateIdentity, {
    description:
      'One change, however many keys the identity has. Answers when no verifier, anywhere, still answers by what it was. An absent field is kept; `{}` and `[]` clear. A caller that may not read identities gets the id, and as `externalId` what it sent.',
    request: Fields({ identity: IdentityName, ...NEW_FIELDS }),
    data: IdentityData,
    example: { identity: 'ada', meta: { plan: 'pro' } },
    toRequest: async ({ identity, ratelimits, ...fields }, { identities }: { identities: Identities }) => ({
      ...fields,
      ...(ratelimits ? { ratelimits: identityLimits(ratelimits) } : {}),
      identityId: await identityIdIn(identity, identities),
    }),
    toAnswer({ propagation, ...identity }, { body }) {
      onceComplete(propagation);
      return { data: identityData({ externalId: body.identity, ...identity }) };
    },
  }),
  inV2(deleteIdentity, { ...THE_IDENTITY, ...DELETED }),
];
