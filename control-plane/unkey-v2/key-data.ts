import { type Static, Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { identityIdOf } from '#shared/contract/key-format.ts';
import { SLUG, SLUGS_MAX } from '#shared/contract/slugs.ts';
import { FIELDS, Id, List, Time } from '../core/schemas/field-schemas.ts';
import { RoleName } from '../core/schemas/role-schemas.ts';
import type { UsedKey } from '../http/operations/keys/key.ts';
import {
  CreditsSchema,
  creditsView,
  GivenRatelimits,
  limitsView,
  RatelimitsSchema,
} from './limits-and-credits.ts';

/** A key in version 2 of the interface. */

const { name, meta, externalId, expires } = FIELDS;
/** Permissions that a request names. */
export const GivenPermissions = Type.Array(
  Type.String({ pattern: SLUG.source, description: 'Letters, digits and `_:.*-`.' }),
  { maxItems: SLUGS_MAX, description: 'Its permissions. They need not be in the catalogue.' },
);
/** Roles that a request names. */
export const GivenRoleNames = Type.Array(RoleName, {
  ...{ maxItems: SLUGS_MAX },
  description: 'Names of its roles, which must exist.',
});

/** The fields of a new key that need no translation. */
export const GIVEN_FIELDS = {
  name: Type.Optional(name),
  externalId: Type.Optional(externalId),
  meta: Type.Optional(meta),
  expires: Type.Optional(expires),
  permissions: Type.Optional(GivenPermissions),
  roles: Type.Optional(GivenRoleNames),
  ratelimits: Type.Optional(GivenRatelimits),
};

/** The fields of a key that updateKey changes; null clears a field. */
export const CHANGED_FIELDS = {
  name: Type.Optional(Type.Union([name, Type.Null()])),
  externalId: Type.Optional(Type.Union([externalId, Type.Null()])),
  meta: Type.Optional(Type.Union([meta, Type.Null()])),
  expires: Type.Optional(Type.Union([expires, Type.Null()])),
  permissions: GIVEN_FIELDS.permissions,
  roles: GIVEN_FIELDS.roles,
  ratelimits: GIVEN_FIELDS.ratelimits,
};

export const KeyData = Type.Object({
  keyId: Id('the key'),
  start: Type.String({ description: 'First characters of the secret.' }),
  enabled: Type.Boolean(),
  name: Type.Optional(name),
  meta: Type.Optional(meta),
  createdAt: Time('When it was created'),
  updatedAt: Type.Optional(Time('When it was last changed')),
  lastUsedAt: Type.Optional(Time('When a verifier last reported that it accepted the key')),
  expires: Type.Optional(expires),
  permissions: Type.Optional(List(Type.String())),
  roles: Type.Optional(List(Type.String({ description: 'The name of a role.' }))),
  credits: Type.Optional(CreditsSchema),
  identity: Type.Optional(Type.Object({ id: Id('the identity'), externalId: Type.String() })),
  ratelimits: Type.Optional(RatelimitsSchema),
});

/** Translates a key from an operation's response into this form. */
export function keyDataOf(key: Static<typeof UsedKey>): Static<typeof KeyData> {
  const { keyId, start, enabled, name, meta, externalId, createdAt, updatedAt, lastUsedAt, expires } = key;
  const limits = limitsView(keyId, key);
  return {
    ...{ keyId, start, enabled, createdAt },
    ...(name === undefined ? {} : { name }),
    ...(Object.keys(meta).length === 0 ? {} : { meta }),
    ...(updatedAt === undefined ? {} : { updatedAt }),
    ...(lastUsedAt === undefined ? {} : { lastUsedAt }),
    ...(expires === undefined ? {} : { expires }),
    ...(key.permissions?.length ? { permissions: key.permissions } : {}),
    ...(key.roles?.length ? { roles: key.roles } : {}),
    ...creditsView(key),
    // Every external id is an identity, even if no record of the identity exists.
    ...(externalId === undefined ? {} : { identity: { id: identityIdOf(externalId), externalId } }),
    ...(limits.length > 0 ? { ratelimits: limits } : {}),
  };
}

export const Decrypt = Type.Optional(
  Type.Boolean({ description: 'true is refused: secrets are not stored, so they cannot be shown again.' }),
);

/** Throws BAD_REQUEST if a request asks for a secret to be stored, or shown again. */
export function refuseKeptSecrets(request: {
  readonly recoverable?: boolean;
  readonly decrypt?: boolean;
}): void {
  for (const field of ['recoverable', 'decrypt'] as const)
    if (request[field])
      throw new ApiError(
        'BAD_REQUEST',
        `${field}: must be false, since only the hash of a secret is kept; reroll a key whose secret is lost`,
      );
}
