import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { Cursor, List } from '../../../core/schemas/field-schemas.ts';
import type { KeyFilter } from '../../../redis/keys/key-view.ts';
import { withoutAliases } from '../aliases.ts';
import { apiNotFound } from '../authorization.ts';
import { makeCursor, openCursor } from '../cursor.ts';
import { lastUsed, UsedKey, withNames } from '../keys/key.ts';
import { operation } from '../operation.ts';
import { ApiId, ExternalId, Fields, Limit, OwnerId, PageCursor } from '../request-parts.ts';
import { PageCursor as PageCursorV2, PageLimit, pagination, Search } from '../v2/envelope.ts';
import { Decrypt, KeyData, keyDataOf, refuseKeptSecrets } from '../v2/key-data.ts';

/**
 * The order, and the creation number at which the page begins. It reveals no more about the API than `total`
 * does.
 */
const PLACE = /^(asc|desc):(\d{1,15})$/;

export const listKeys = operation({
  name: 'apis.listKeys',
  summary: 'List the keys of an API',
  description:
    'Lists the keys in order of creation; following the cursors visits each key once. With a filter, a page may be short and still have a cursor.',
  permissions: ['api.<apiId>.read_key', 'api.<apiId>.read_api'],
  request: Fields({
    apiId: ApiId,
    limit: Limit('Keys'),
    cursor: PageCursor({ minLength: 1, maxLength: 64 }),
    enabled: Type.Optional(Type.Union([Type.Literal('true'), Type.Literal('false')])),
    externalId: Type.Optional(ExternalId),
    ownerId: Type.Optional(OwnerId),
    name: Type.Optional(Type.String({ minLength: 1, maxLength: 256, description: 'Prefix of the name.' })),
    search: Search('the name or the id'),
    sort: Type.Union([Type.Literal('createdAt'), Type.Literal('-createdAt')], { default: 'createdAt' }),
  }),
  response: Type.Object({
    keys: List(UsedKey),
    total: Type.Integer({ minimum: 0, description: 'Number of all keys of the API, whatever the filter.' }),
    cursor: Cursor,
  }),
  errors: ['NOT_FOUND'],
  v2: {
    request: Fields({
      apiId: ApiId,
      limit: PageLimit,
      cursor: PageCursorV2,
      externalId: Type.Optional(ExternalId),
      decrypt: Decrypt,
      revalidateKeysCache: Type.Optional(
        Type.Boolean({ description: 'Of no effect: the control plane has no cache.' }),
      ),
    }),
    data: List(KeyData),
    paged: true,
    example: { apiId: 'shop', limit: 100 },
    toRequest({ decrypt = false, revalidateKeysCache: _cacheOption, limit, ...query }) {
      refuseKeptSecrets({ decrypt });
      return { ...query, limit: String(limit), sort: 'createdAt' as const };
    },
    toAnswer: ({ keys, cursor }) => ({ data: keys.map(keyDataOf), pagination: pagination(cursor) }),
  },
  async handle({ request }, services) {
    const { view, usage } = services;
    const { apiId, limit, cursor, sort, enabled, externalId, name, search } = withoutAliases(request);
    const order = sort === 'createdAt' ? 'asc' : 'desc';
    const from = cursor === undefined ? undefined : placeOf(cursor, order);
    const filter: KeyFilter = {
      ...(enabled === undefined ? {} : { enabled: enabled === 'true' }),
      ...(externalId === undefined ? {} : { externalId }),
      ...(name === undefined ? {} : { namePrefix: name }),
      ...(search === undefined ? {} : { search }),
    };
    const page = await view.list(apiId, filter, Number(limit), order, from);
    if (!page) throw apiNotFound(apiId);
    const usageTimes = await usage.lastUsedAtOf(
      apiId,
      page.keys.map(({ keyId }) => keyId),
    );
    return {
      keys: await withNames(
        services,
        page.keys.map((key, i) => ({ ...key, ...lastUsed(usageTimes[i]) })),
      ),
      total: page.total,
      ...(page.next === undefined ? {} : { cursor: makeCursor(`${order}:${page.next}`) }),
    };
  },
});

function placeOf(cursor: string, order: 'asc' | 'desc'): number {
  const [direction, from] = openCursor(cursor, PLACE, 'listKeys');
  if (direction !== order)
    throw new ApiError('BAD_REQUEST', 'cursor: belongs to another sort; begin without a cursor');
  return Number(from);
}
