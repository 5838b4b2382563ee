import { Type } from 'typebox';
import { PERMISSION_PATTERN } from '../../core/permissions.ts';
import {
  ApiId,
  Bytes,
  ExternalId,
  KeyId,
  Moment,
  Name,
  OwnerId,
  Prefix,
  period,
  strict,
  WaitMs,
} from './request-parts.ts';

/** Schemas of the requests that are not about keys by their ids: APIs, root keys, verifiers, events. */

/** Schema of how many a page has; a query's values are texts. */
export const Limit = (items: string) =>
  Type.String({
    pattern: '^([1-9][0-9]?|100)$',
    default: '100',
    description: `${items} per page, 1..100.`,
  });
const Cursor = (form: { pattern: string } | { minLength: number; maxLength: number }) =>
  Type.Optional(Type.String({ ...form, description: 'From the page before.' }));
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
