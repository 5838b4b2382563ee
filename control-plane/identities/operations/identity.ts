import { type Static, Type } from 'typebox';
import { API_ID_PATTERN } from '#shared/contract/api-id.ts';
import { ApiError } from '#shared/contract/errors.ts';
import { identityIdOf } from '#shared/contract/key-format.ts';
import { ExternalId, type Fields } from '../../serve/request-parts.ts';
import { FIELDS, Id, List } from '../../serve/schemas/field-schemas.ts';
import { Ratelimits } from '../../serve/schemas/limit-schemas.ts';

export const IDENTITY_ID = /^identity_[A-Za-z0-9_-]{1,71}$/;
export const IdentityId = Type.String({
  pattern: IDENTITY_ID.source,
  description: "An identity's id, as createIdentity returned it.",
});
export const identityIdExample = 'identity_0mzc9k4q8r2wfXa1Bc2d';

/** The fields of an identity that createIdentity and updateIdentity take. */
export const CHANGEABLE_FIELDS = {
  meta: Type.Optional(FIELDS.meta),
  ratelimits: Type.Optional(
    Ratelimits({
      description:
        'Rate limits that all keys of the identity share, in all APIs. A limit applies to verifications that name it; if the key itself has a limit of that name, only that one applies. `[]` removes all.',
    }),
  ),
};

/** A tenant has few APIs; an identity for more leaves this out. */
const APIS_MAX = 100;
export const ApiIds = Type.Array(Type.String({ pattern: `^${API_ID_PATTERN}$` }), {
  ...{ minItems: 1, maxItems: APIS_MAX, uniqueItems: true },
  description:
    'The APIs in which the identity applies, for installations with APIs of several tenants; absent = all. A key with this `externalId` in another API has no identity.',
});

export const IdentityView = Type.Object({
  id: Id('the identity'),
  externalId: Type.String({ description: "The identity's id in the caller's own system." }),
  enabled: Type.Boolean({ description: 'false: no key of the identity is accepted.' }),
  meta: Type.Object({}, { additionalProperties: true, description: 'The meta, unchanged.' }),
  ratelimits: Ratelimits({ description: 'Rate limits that all keys of the identity share, in all APIs.' }),
  apiIds: Type.Optional(
    List(Type.String(), { description: 'The APIs in which the identity applies; absent = all.' }),
  ),
});

/** The identity that a call concerns. */
export const REFERENCE = { identityId: Type.Optional(IdentityId), externalId: Type.Optional(ExternalId) };

/** Returns the identity's id. Throws BAD_REQUEST unless exactly one of the two is given. */
export function idIn({
  identityId,
  externalId,
}: Static<ReturnType<typeof Fields<typeof REFERENCE>>>): string {
  if ((identityId === undefined) === (externalId === undefined))
    throw new ApiError('BAD_REQUEST', 'identityId: give either this or externalId');
  return identityId ?? identityIdOf(externalId ?? '');
}

/** The error for an identity that does not exist. */
export const identityNotFound = () => new ApiError('NOT_FOUND', 'there is no such identity');
