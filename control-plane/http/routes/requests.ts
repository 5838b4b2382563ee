import { Type } from 'typebox';
import { API_ID } from '#shared/api-id.ts';
import { KEY_FIELDS } from '#shared/key-record.ts';
import { CHANGED_CREDITS, CREDITS_OPERATION, NEW_CREDITS } from '../../core/credit-schemas.ts';
import { CHANGED_FIELDS, FIELDS, OPTIONAL_FIELDS } from '../../core/field-schemas.ts';
import { PERMISSION_PATTERN } from '../../core/permissions.ts';
import { GivenSlugs } from '../../core/slug-schemas.ts';

/** Schemas of all requests: the single source of their types, validation and documentation. */

const strict = { additionalProperties: false } as const;

const ApiId = Type.String({ pattern: API_ID.source, description: 'The API that keys belong to.' });
const KeyId = Type.String({
  pattern: '^[A-Za-z0-9_-]{1,80}$',
  description: "A key's id, as createKey returned it.",
});
const { name: Name, externalId: ExternalId, ownerId: OwnerId } = FIELDS;
const WaitMs = Type.Integer({
  minimum: 0,
  maximum: 60_000,
  description: 'Longest time to hold the answer until the change is complete, ms.',
});

const OperationId = (description: string) => Type.String({ pattern: '^[A-Za-z0-9_-]{16,64}$', description });

/** A query's values are texts. */
const Limit = (items: string) =>
  Type.String({
    pattern: '^([1-9][0-9]?|100)$',
    default: '100',
    description: `${items} per page, 1..100.`,
  });
const Cursor = (form: { pattern: string } | { minLength: number; maxLength: number }) =>
  Type.Optional(Type.String({ ...form, description: 'From the page before.' }));
const Moment = (description: string) =>
  Type.Optional(Type.String({ pattern: '^[0-9]{1,15}$', description: `Unix milliseconds; ${description}` }));
const Prefix = (description: string) => Type.String({ pattern: '^[A-Za-z0-9_]{1,16}$', description });
const Bytes = (description: string) => Type.Integer({ minimum: 16, maximum: 255, description });

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

const { enabled: _enabled, permissions: _permissions, ...changedAlike } = CHANGED_FIELDS;
const changed = {
  ...changedAlike,
  permissions: Type.Optional(
    Type.Union([GivenSlugs({ description: KEY_FIELDS.permissions.description }), Type.Null()]),
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
        'A name of your own for this call. Sent again with it, because no answer came, the call replaces the key that nobody has instead of making a third one.',
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
export const DeleteAllKeys = Type.Object(
  {
    apiId: ApiId,
    permanent: Type.Optional(
      Type.Literal(true, {
        description: 'Keys are deleted for good; to bring them back, disable them instead.',
      }),
    ),
    waitMs: Type.Optional(WaitMs),
  },
  strict,
);

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

const period = {
  granularity: Type.Union([Type.Literal('hour'), Type.Literal('day')], {
    default: 'day',
    description: 'Hours and days begin as those of UTC do.',
  }),
  start: Moment('as far back as is kept.'),
  end: Moment('now.'),
};
export const GetVerifications = Type.Object({ keyId: KeyId, ...period }, strict);
export const GetApiVerifications = Type.Object(
  {
    apiId: ApiId,
    ...period,
    tag: Type.Optional(
      Type.String({ minLength: 1, maxLength: 128, description: 'Only verdicts with this tag, by the day.' }),
    ),
    groupBy: Type.Optional(
      Type.Literal('tag', { description: 'One sum for each tag of the time that is asked for.' }),
    ),
    limit: Type.String({
      pattern: '^([1-9][0-9]{0,2}|1000)$',
      default: '1000',
      description: 'Tags that are told apart, 1..1000; the rest is summed up as `other`.',
    }),
  },
  strict,
);

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

export const ListKeys = Type.Object(
  {
    apiId: ApiId,
    limit: Limit('Keys'),
    cursor: Cursor({ minLength: 1, maxLength: 64 }),
    enabled: Type.Optional(Type.Union([Type.Literal('true'), Type.Literal('false')])),
    externalId: Type.Optional(ExternalId),
    ownerId: Type.Optional(OwnerId),
    name: Type.Optional(Type.String({ minLength: 1, maxLength: 256, description: 'Beginning of the name.' })),
    sort: Type.Union([Type.Literal('createdAt'), Type.Literal('-createdAt')], { default: 'createdAt' }),
  },
  strict,
);

const DEFAULTS = {
  defaultPrefix: Prefix('The `prefix` of keys that are created without one.'),
  defaultBytes: Bytes('The `byteLength` of keys that are created without one.'),
};
export const CreateApi = Type.Object(
  {
    name: Name,
    apiId: Type.Optional(ApiId),
    defaultPrefix: Type.Optional(DEFAULTS.defaultPrefix),
    defaultBytes: Type.Optional(DEFAULTS.defaultBytes),
  },
  strict,
);
export const UpdateApi = Type.Object(
  {
    apiId: ApiId,
    name: Type.Optional(Name),
    defaultPrefix: Type.Optional(Type.Union([DEFAULTS.defaultPrefix, Type.Null()])),
    defaultBytes: Type.Optional(Type.Union([DEFAULTS.defaultBytes, Type.Null()])),
  },
  strict,
);
export const GetApi = Type.Object({ apiId: ApiId }, strict);
export const DeleteApi = Type.Object({ apiId: ApiId, waitMs: Type.Optional(WaitMs) }, strict);
export const ListApis = Type.Object(
  {
    limit: Limit('APIs'),
    cursor: Cursor({ minLength: 1, maxLength: 96 }),
  },
  strict,
);

export const CreateRootKey = Type.Object(
  {
    name: Name,
    permissions: Type.Array(Type.String({ pattern: PERMISSION_PATTERN }), {
      minItems: 1,
      maxItems: 100,
      uniqueItems: true,
    }),
  },
  strict,
);
export const UpdateRootKey = Type.Object(
  { rootKeyId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,80}$' }), enabled: Type.Boolean() },
  strict,
);
export const ListRootKeys = Type.Object({}, strict);

export const ListVerifiers = Type.Object(
  {
    limit: Limit('Verifiers'),
    cursor: Cursor({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
  },
  strict,
);

export const ListEvents = Type.Object(
  {
    limit: Limit('Events'),
    cursor: Cursor({ pattern: '^[1-9][0-9]{0,14}-[0-9]{1,15}$' }),
    refused: Type.Union([Type.Literal('true'), Type.Literal('false')], {
      default: 'false',
      description: 'true: refused calls. false: calls that changed something, or may have.',
    }),
    since: Moment('nothing older.'),
    until: Moment('nothing newer.'),
    operation: Type.Optional(
      Type.String({ pattern: '^[A-Za-z]{1,32}\\.[A-Za-z]{1,32}$', description: 'Such as keys.updateKey.' }),
    ),
    apiId: Type.Optional(ApiId),
    keyId: Type.Optional(KeyId),
    rootKeyId: Type.Optional(
      Type.String({ pattern: '^[A-Za-z0-9_-]{1,80}$', description: 'The root key that called.' }),
    ),
  },
  strict,
);
