import { type TNull, type TOptional, type TUnion, Type } from 'typebox';
import { TOKEN_LEEWAY } from '#shared/protocol/timing.ts';
import type { ChangeWriter } from '#shared/protocol/writer/writer.ts';
import { API_ID_PATTERN } from '#shared/rules/slugs.ts';
import {
  IfSequence,
  LastSequence,
  Propagation,
  PropagationResponse,
  SequenceText,
  WaitMs,
} from '../schema/changes.ts';
import { Name } from '../schema/key-fields.ts';
import { Cursor, Limit, makeCursor, openCursor, PageCursor } from '../schema/lists.ts';
import {
  CHANGED_MANAGED,
  IF_MANAGED,
  isManagedBy,
  MANAGED_FILTER,
  MANAGED_VIEW,
  NEW_MANAGED,
} from '../schema/managed.ts';
import { ApiId, Bytes, Count, Fields, Id, List, Prefix, Time } from '../schema/primitives.ts';
import { apiNotFound, lack } from '../serve/authorization.ts';
import type { Call } from '../serve/call.ts';
import { operation } from '../serve/operation.ts';
import type { Api, Apis } from './apis.ts';

/** 100 years. */
const LIFETIME_MS_MAX = 3_155_760_000_000;
const Lifetime = (description: string) =>
  Type.Integer({ minimum: 60_000, maximum: LIFETIME_MS_MAX, description });

/** An API's defaults for new keys and its rules, in requests. */
const DEFAULTS = {
  defaultPrefix: Prefix('The `prefix` of keys that are created without one.'),
  defaultBytes: Bytes('The `byteLength` of keys that are created without one.'),
  defaultLifetimeMs: Lifetime('A key that is created without `expires` expires after this time, ms.'),
  maxLifetimeMs: Lifetime(
    'No key can be created, rotated or changed to expire later than this from now, or never, ms. Without `defaultLifetimeMs`, new keys must then have `expires`.',
  ),
  disableUnusedAfterMs: Type.Integer({
    minimum: 86_400_000,
    maximum: LIFETIME_MS_MAX,
    description:
      'A key is disabled if no verification accepts it and nobody changes it for this time, ms. The time begins anew when the rule is set.',
  }),
  selfRevocation: Type.Boolean({
    description: 'true: who has a key may revoke it at `POST /oauth2/revoke` (RFC 7009), without a root key.',
  }),
};
type Defaults = typeof DEFAULTS;
const OPTIONAL_DEFAULTS = Type.Partial(Type.Object(DEFAULTS)).properties;
const CHANGED_DEFAULTS = Object.fromEntries(
  Object.entries(DEFAULTS).map(([name, schema]) => [name, Type.Optional(Type.Union([schema, Type.Null()]))]),
) as { [Name in keyof Defaults]: TOptional<TUnion<[Defaults[Name], TNull]>> };

/** The same in responses. */
const DEFAULTS_VIEW = {
  defaultPrefix: Type.Optional(Type.String({ description: 'The `prefix` of keys created without one.' })),
  defaultBytes: Type.Optional(Type.Integer({ description: 'The `byteLength` of keys created without one.' })),
  defaultLifetimeMs: Type.Optional(
    Type.Integer({ description: 'The lifetime of keys created without `expires`, ms.' }),
  ),
  maxLifetimeMs: Type.Optional(Type.Integer({ description: 'The longest lifetime of a key, ms.' })),
  disableUnusedAfterMs: Type.Optional(
    Type.Integer({ description: 'Time after which a key that nobody uses is disabled, ms.' }),
  ),
  selfRevocation: Type.Optional(Type.Boolean({ description: 'true: who has a key may revoke it.' })),
};

const TOKENS = Type.Boolean({
  description:
    'true: verifiers issue tokens about its keys (keys.issueToken). Changes that end tokens, also of roles and identities, are then complete when these have ended, after about 10 s and `tokenLeewayMs`.',
});
const TOKEN_AUDIENCES = List(Type.String({ minLength: 1, maxLength: 256 }), {
  ...{ minItems: 1, maxItems: 10, uniqueItems: true },
  description:
    'Whom tokens may be for: `aud`. The first one is the default. Each is the id of this API, or a text with a colon, slash or dot. Absent: the id of this API alone. Taking one away is complete when tokens for it have ended.',
});
const TOKEN_LEEWAY_MS = Type.Integer({
  ...{ minimum: 0, maximum: TOKEN_LEEWAY.maxMs },
  description:
    'The longest time for which a service behind accepts a token after its end, ms. Changes wait for it. Absent: 62000.',
});

const ApiView = Type.Object({
  id: Id('the API'),
  name: Type.Optional(Type.String()),
  ...DEFAULTS_VIEW,
  tokens: Type.Optional(Type.Boolean({ description: 'true: verifiers issue tokens about its keys.' })),
  tokenAudiences: Type.Optional(
    List(Type.String(), { description: 'Whom these may be for; absent: the id of this API.' }),
  ),
  tokenLeewayMs: Type.Optional(
    Type.Integer({ description: 'The time for which others accept one after its end, ms; absent: 62000.' }),
  ),
  ...MANAGED_VIEW,
  createdAt: Time('When it was created'),
  sequence: LastSequence,
  keys: Type.Optional(Count('Number of keys of the API; shown only to callers that may read keys.')),
  foreignKeys: Type.Optional(
    Type.Literal(true, {
      description:
        'true: some keys of the API have a foreign format, and only verifiers with FOREIGN_KEYS on find them.',
    }),
  ),
  foreignDigests: Type.Optional(
    List(Type.String(), {
      description:
        'Digests besides SHA-256 by which some of these were imported: FOREIGN_DIGESTS of verifiers.',
    }),
  ),
  protocol: Type.Optional(
    Type.Integer({
      minimum: 2,
      description:
        'The protocol that verifiers of the API must speak, because some of its keys need it or once did; absent: any protocol.',
    }),
  ),
});

/** Returns an API as the caller may see it: the number of its keys requires the permission to read keys. */
const seenBy = ({ permissions }: Call['caller'], { keys, ...api }: Api) =>
  permissions.allows(api.id, 'read_key') ? { ...api, keys } : api;

export const createApi = operation({
  name: 'apis.createApi',
  kind: 'change',
  adds: true,
  summary: 'Create an API',
  description: 'Keys belong to an API. The first key of an unknown API creates it too.',
  permissions: ['api.<apiId>.create_api'],
  authorizesItself: true,
  request: Fields({
    name: Name,
    apiId: Type.Optional(ApiId),
    ...OPTIONAL_DEFAULTS,
    ...NEW_MANAGED,
  }),
  response: Type.Object({
    ...{ apiId: Id('the API'), name: Type.String(), ...DEFAULTS_VIEW },
    managedBy: MANAGED_VIEW.managedBy,
  }),
  event: 'api.created',
  errors: ['CONFLICT'],
  example: { name: 'Shop', apiId: 'shop' },
  async handle(call, { apis }: { apis: Apis }) {
    const { apiId, ...about } = call.request;
    // Whether an API of this id exists need not be hidden here, so say which permission is missing.
    if (!call.caller.permissions.allows(apiId ?? '*', 'create_api')) {
      throw lack(call.caller, `api.${apiId ?? '*'}.create_api`);
    }
    const created = await apis.create(call.request, call.draw);
    call.note({ apiId: created.apiId }, { after: about });
    return created;
  },
});

export const getApi = operation({
  name: 'apis.getApi',
  kind: 'query',
  summary: 'Show an API',
  description: 'Shows the name, the defaults for new keys, the rules, and the time of creation.',
  permissions: ['api.<apiId>.read_api'],
  request: Fields({ apiId: ApiId }),
  response: ApiView,
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop' },
  async handle({ request, caller }, { apis }: { apis: Apis }) {
    const api = await apis.get(request.apiId);
    if (!api) throw apiNotFound(request.apiId);
    return seenBy(caller, api);
  },
});

/** The id after which the page begins; the caller may read that API. */
const PLACE = new RegExp(`^after:(${API_ID_PATTERN})$`);

const listApis = operation({
  name: 'apis.listApis',
  kind: 'query',
  summary: 'List APIs',
  description: 'Lists the APIs that the root key may read. A page may be short and still have a cursor.',
  permissions: ['api.<apiId>.read_api'],
  authorizesItself: true,
  request: Fields({
    limit: Limit('APIs'),
    cursor: PageCursor({ minLength: 1, maxLength: 128 }),
    ...MANAGED_FILTER,
  }),
  response: Type.Object({ apis: List(ApiView), cursor: Cursor }),
  errors: [],
  example: { limit: '25' },
  async handle({ request, caller }, { apis }: { apis: Apis }) {
    const { managedBy } = request;
    const listing = ['listApis', ...(managedBy === undefined ? [] : [managedBy])] as const;
    const [after = ''] = request.cursor === undefined ? [] : openCursor(listing, request.cursor, PLACE);
    const limit = Number(request.limit);
    // If the caller may read only some APIs, read no others. Then neither a cursor nor the time taken nor a
    // short page reveals that others exist.
    const readableIds = caller.permissions.apisWith('read_api');
    const page = readableIds ? await apis.among(readableIds, after, limit) : await apis.list(after, limit);
    return {
      apis: page.apis.filter(isManagedBy(managedBy)).map((api) => seenBy(caller, api)),
      ...(page.next === undefined ? {} : { cursor: makeCursor(listing, `after:${page.next}`) }),
    };
  },
});

const updateApi = operation({
  name: 'apis.updateApi',
  kind: 'change',
  summary: 'Change the name of an API, the defaults of its new keys and its rules',
  description:
    'Absent fields stay unchanged; null clears a field. Existing keys do not change. A change that ends tokens returns when these have ended, like updateKey, and has `propagation`.',
  permissions: ['api.<apiId>.update_api'],
  request: Fields({
    apiId: ApiId,
    name: Type.Optional(Name),
    ...CHANGED_DEFAULTS,
    tokens: Type.Optional(Type.Union([TOKENS, Type.Null()])),
    tokenAudiences: Type.Optional(Type.Union([TOKEN_AUDIENCES, Type.Null()])),
    tokenLeewayMs: Type.Optional(Type.Union([TOKEN_LEEWAY_MS, Type.Null()])),
    ...CHANGED_MANAGED,
    ifSequence: IfSequence,
    waitMs: WaitMs,
  }),
  response: Type.Object({
    ...{ apiId: Id('the API'), sequence: LastSequence },
    propagation: Type.Optional(Propagation),
  }),
  event: 'api.updated',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { apiId: 'shop', defaultPrefix: 'shop' },
  async handle(call, { apis, changeWriter }: { apis: Apis; changeWriter: ChangeWriter }) {
    const { apiId, ifSequence, waitMs, ...patch } = call.request;
    call.intend(patch);
    const updated = await apis.update(apiId, patch, ifSequence);
    if (updated === undefined) throw apiNotFound(apiId);
    call.note({}, { before: updated.before, after: patch });
    const { sequence } = updated;
    const { tokens, tokenAudiences, tokenLeewayMs } = patch;
    if (!(tokens === false || tokens === null) && tokenAudiences === undefined && tokenLeewayMs === undefined)
      return { apiId, sequence };
    // Tokens from before this no-op have the former audiences, and end by the former leeway.
    const write = { apiId, operation: 'noop', keyId: '', fields: {}, endsLent: true } as const;
    const propagation = await changeWriter.apply(write, waitMs, () => call.giveTurnBack());
    if (propagation === undefined) throw apiNotFound(apiId);
    return { apiId, sequence, propagation };
  },
});

/** The logs of APIs, as far as this subject asks about them. */
interface LogHeads {
  headOfApi(apiId: string): Promise<{ readonly sequence: number; readonly hash: string }>;
}

const getApiPropagation = operation({
  name: 'apis.getApiPropagation',
  kind: 'query',
  summary: 'See how far a change of the tokens of an API has come, or its deletion',
  description:
    'For changes that returned `pending`. Without `sequence`, waits until whatever was changed in the API before the call is complete, like updateKey.',
  permissions: ['api.<apiId>.read_api'],
  request: Fields({ apiId: ApiId, sequence: Type.Optional(SequenceText) }),
  response: PropagationResponse,
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { apiId: 'shop', sequence: '1' },
  async handle(
    call,
    { apis, keys, changeWriter }: { apis: Apis; keys: LogHeads; changeWriter: ChangeWriter },
  ) {
    const { apiId, sequence } = call.request;
    if (!(await apis.isKnown(apiId))) throw apiNotFound(apiId);
    const ofHead = async () => {
      const head = await keys.headOfApi(apiId);
      call.giveTurnBack();
      return changeWriter.whenComplete(apiId, '', head.sequence, true, head.hash);
    };
    const propagation =
      sequence === undefined ? await ofHead() : await changeWriter.status(apiId, '', Number(sequence));
    if (!propagation) throw apiNotFound(apiId);
    return { propagation };
  },
});

export const deleteApi = operation({
  name: 'apis.deleteApi',
  kind: 'change',
  stops: 'always',
  summary: 'Delete an API with all its keys',
  description:
    'Returns when the deletion is complete, like updateKey. The id can be used again once the keys are removed.',
  permissions: ['api.<apiId>.delete_api'],
  request: Fields({ apiId: ApiId, ...IF_MANAGED, waitMs: WaitMs }),
  response: PropagationResponse,
  event: 'api.deleted',
  errors: ['NOT_FOUND', 'CONFLICT'],
  example: { apiId: 'shop' },
  neverShed: true,
  async handle(call, { changeWriter }: { changeWriter: ChangeWriter }) {
    const { apiId, waitMs, ifManagedBy } = call.request;
    const write = { apiId, operation: 'api-deleted', keyId: '', fields: {}, ifManagedBy } as const;
    const propagation = await changeWriter.apply(write, waitMs, ({ sequence }) => {
      call.giveTurnBack();
      call.note({}, { sequence });
    });
    if (!propagation) throw apiNotFound(apiId);
    return { propagation };
  },
});

export const apiOperations = [createApi, updateApi, getApi, listApis, deleteApi, getApiPropagation] as const;
