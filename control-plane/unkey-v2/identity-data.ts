import { type Static, Type } from 'typebox';
import { identityIdOf } from '#shared/contract/key-format.ts';
import { KEY_FIELDS } from '#shared/contract/key-record.ts';
import { FIELDS, Id } from '../core/schemas/field-schemas.ts';
import { IDENTITY_ID } from '../http/operations/identities/identity.ts';
import type { Identities, Identity } from '../redis/shared-log/identities.ts';
import { GivenRatelimits, limitsView, RatelimitsSchema } from './limits-and-credits.ts';

/** An identity in version 2 of the interface. */

const { meta } = FIELDS;
/** The fields of an identity in requests. */
export const NEW_FIELDS = { meta: Type.Optional(meta), ratelimits: Type.Optional(GivenRatelimits) };

export const IdentityName = Type.String({
  ...{ minLength: 1, maxLength: KEY_FIELDS.externalId.lengthMax },
  description:
    "Its id, or its `externalId`. Where it is one identity's id and the `externalId` of another, the id counts.",
});

export const IdentityData = Type.Object({
  id: Id('the identity'),
  externalId: Type.String({ description: "The identity's id in the caller's own system." }),
  meta: Type.Optional(meta),
  ratelimits: Type.Optional(RatelimitsSchema),
});

/** Translates an identity from an operation's response into this form. */
export function identityData({
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
export async function identityIdIn(name: string, identities: Identities): Promise<string> {
  const ofExternalId = identityIdOf(name);
  if (!IDENTITY_ID.test(name)) return ofExternalId;
  if (await identities.get(name)) return name;
  return (await identities.get(ofExternalId)) ? ofExternalId : name;
}
