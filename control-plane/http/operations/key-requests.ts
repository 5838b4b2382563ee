import { Type } from 'typebox';
import { KEY_FIELDS } from '#shared/key-record.ts';
import { CHANGED_CREDITS, CREDITS_OPERATION, NEW_CREDITS } from '../../core/credit-schemas.ts';
import { CHANGED_FIELDS, OPTIONAL_FIELDS } from '../../core/field-schemas.ts';
import { GivenRoles } from '../../core/role-schemas.ts';
import { GivenSlugs } from '../../core/slug-schemas.ts';
import {
  ApiId,
  Bytes,
  KeyId,
  OperationId,
  OwnerId,
  Prefix,
  period,
  strict,
  WaitMs,
} from './request-parts.ts';

/** Schemas of requests about keys. Schemas are the single source of their types, validation and documentation. */

const { name: _name, ...described } = OPTIONAL_FIELDS;
export const CreateKey = Type.Object(
  {
    apiId: ApiId,
    name: OPTIONAL_FIELDS.name,
    prefix: Type.Optional(
      Prefix('Beginning of the key, before an underscore; when absent, the default of its API.'),
    ),
    byteLength: Type.Optional(Bytes('Random bytes in the key; when absent, the default of its API, or 16.')),
    ...described,
    ...NEW_CREDITS,
    enabled: Type.Boolean({ default: true, description: 'false: the key is refused until it is enabled.' }),
  },
  strict,
);

const { enabled: _enabled, permissions: _permissions, roles: _roles, ...changedAlike } = CHANGED_FIELDS;
const changed = {
  ...changedAlike,
  permissions: Type.Optional(
    Type.Union([GivenSlugs({ description: KEY_FIELDS.permissions.description }), Type.Null()]),
  ),
  roles: Type.Optional(
    Type.Union([GivenRoles({ description: 'All roles that the key is to have.' }), Type.Null()]),
  ),
};
export const UpdateKey = Type.Object(
  {
    keyId: KeyId,
    enabled: Type.Optional(Type.Boolean({ description: 'false disables the key, true brings it back.' })),
    ...changed,
    ...CHANGED_CREDITS,
    waitMs: Type.Optional(WaitMs),
  },
  strict,
);

const aboutPermissions = (description: string) =>
  Type.Object({ keyId: KeyId, permissions: GivenSlugs({ description }) }, strict);
export const AddPermissions = aboutPermissions('What the key may do besides what it may already.');
export const SetPermissions = aboutPermissions('What the key may do, and nothing else.');
export const RemovePermissions = Type.Object(
  {
    ...aboutPermissions('What the key may do no longer.').properties,
    waitMs: Type.Optional(WaitMs),
  },
  strict,
);

export const UpdateRemaining = Type.Object(
  {
    keyId: KeyId,
    ...CREDITS_OPERATION,
    operationId: Type.Optional(
      OperationId(
        'A name of your own for this change. Sent again with it within an hour, the change is made once, and answered as before.',
      ),
    ),
    waitMs: Type.Optional(WaitMs),
  },
  strict,
);

/** 100 years. */
const EXPIRATION_MAX = 3_155_760_000_000;
export const RerollKey = Type.Object(
  {
    keyId: KeyId,
    expiration: Type.Integer({
      minimum: 0,
      maximum: EXPIRATION_MAX,
      description:
        'For how long the old key is still accepted, ms; one that expires sooner does. 0: it is refused when the call returns.',
    }),
    operationId: Type.Optional(
      OperationId(
        'A name of your own for this call. Sent again with it and the same `expiration` within an hour, because no answer came, the call replaces the key that nobody has instead of making a third one.',
      ),
    ),
    waitMs: Type.Optional(WaitMs),
  },
  strict,
);

/** Most keys that one call changes. */
export const MANY_KEYS_MAX = 1000;
/** The keys that a call is about. */
const choice = {
  apiId: ApiId,
  keyIds: Type.Optional(
    Type.Array(KeyId, {
      minItems: 1,
      maxItems: MANY_KEYS_MAX,
      description: 'The keys. Those that the API does not have are reported among the results.',
    }),
  ),
  externalId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description: `Instead of keyIds: the owner whose keys are meant, ${MANY_KEYS_MAX} in a call.`,
    }),
  ),
  ownerId: Type.Optional(OwnerId),
  cursor: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 64,
      description: "For an owner's next keys, from the call before.",
    }),
  ),
};
const { externalId: _owner, ownerId: _ownerToo, ...changedOfMany } = changed;
export const UpdateKeys = Type.Object(
  {
    ...choice,
    enabled: Type.Optional(Type.Boolean({ description: 'false disables the keys, true brings them back.' })),
    ...changedOfMany,
    waitMs: Type.Optional(WaitMs),
  },
  strict,
);
export const DeleteKeys = Type.Object({ ...choice, waitMs: Type.Optional(WaitMs) }, strict);
const Hash = Type.String({
  pattern: '^([0-9a-fA-F]{64}|[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048])$',
  description: 'SHA-256 of the key, in hex or base64url without padding.',
});

/** A key that was made elsewhere. */
export const ImportedKey = Type.Object(
  {
    sha256: Hash,
    start: Type.Optional(
      Type.String({ pattern: '^[!-~]{1,21}$', description: 'Beginning of the key, shown to people.' }),
    ),
    foreign: Type.Optional(
      Type.Boolean({
        description:
          'true, the default: the key is not in the format of Keyfence. Only verifiers with FOREIGN_KEYS on find such keys.',
      }),
    ),
    ...OPTIONAL_FIELDS,
    ...NEW_CREDITS,
    enabled: Type.Optional(Type.Boolean({ description: 'false: the key is refused. true when absent.' })),
  },
  strict,
);

export const ImportKeys = Type.Object(
  {
    apiId: ApiId,
    // Anything else is refused in its own place among the results, and does not spoil the others.
    keys: Type.Array(Type.Union([ImportedKey, Type.Unknown()]), { minItems: 1, maxItems: 500 }),
  },
  strict,
);

export const GetKey = Type.Object({ keyId: KeyId }, strict);
export const Whoami = Type.Object(
  {
    key: Type.String({
      minLength: 1,
      maxLength: 512,
      description: 'The secret; only its hash is looked up.',
    }),
  },
  strict,
);

export const GetVerifications = Type.Object({ keyId: KeyId, ...period }, strict);
export const DeleteKey = Type.Object({ keyId: KeyId, waitMs: Type.Optional(WaitMs) }, strict);

export const GetPropagation = Type.Object(
  {
    keyId: KeyId,
    sequence: Type.String({
      pattern: '^[1-9][0-9]{0,14}$',
      description: 'The `sequence` that the change answered.',
    }),
  },
  strict,
);
