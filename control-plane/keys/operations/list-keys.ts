import { Type } from 'typebox';
import { withoutAliases } from '../../serve/aliases.ts';
import { apiNotFound } from '../../serve/authorization.ts';
import { makeCursor, openCursor } from '../../serve/cursor.ts';
import { operation } from '../../serve/operation.ts';
import { ApiId, ExternalId, Fields, Limit, OwnerId, PageCursor, Search } from '../../serve/request-parts.ts';
import { Cursor, List } from '../../serve/schemas/field-schemas.ts';
import type { Services } from '../../services.ts';
import { lastUsed, UsedKey, withNames } from '../key-answer.ts';
import type { KeyFilter } from '../key-view.ts';
import type { Place, ValueOrder } from '../ordered-keys.ts';

/**
 * The creation number at which the page begins; in orders other than that of creation, that of the last key of the page
 * before and its value. It reveals no more about the API than `total` and that page do.
 */
const PLACE = /^(\d{1,15}):(.*)$/s;
/** Maximum length of a cursor: one with a name of 256 characters of 4 bytes has 1,407. */
const CURSOR_MAX = 1500;

type Order = 'asc' | 'desc' | ValueOrder;

export const listKeys = operation({
  name: 'apis.listKeys',
  summary: 'List the keys of an API',
  description:
    'Lists the keys in the order that `sort` names; following the cursors visits each key once while nothing changes. In order of creation, a page with a filter may be short and still have a cursor. In any other order, each page examines all keys: at most 200,000, or those of `externalId`. Keys without a value come last. Names are compared in any case, and numbers in them by value.',
  permissions: ['api.<apiId>.read_key', 'api.<apiId>.read_api'],
  request: Fields({
    apiId: ApiId,
    limit: Limit('Keys'),
    cursor: PageCursor({ minLength: 1, maxLength: CURSOR_MAX }),
    enabled: Type.Optional(Type.Union([Type.Literal('true'), Type.Literal('false')])),
    externalId: Type.Optional(ExternalId),
    ownerId: Type.Optional(OwnerId),
    name: Type.Optional(Type.String({ minLength: 1, maxLength: 256, description: 'Prefix of the name.' })),
    search: Search('the name, the id or the external id'),
    sort: Type.Union(
      [
        Type.Literal('createdAt'),
        Type.Literal('-createdAt'),
        Type.Literal('name'),
        Type.Literal('-name'),
        Type.Literal('expires'),
        Type.Literal('-expires'),
        Type.Literal('lastUsedAt'),
        Type.Literal('-lastUsedAt'),
      ],
      { default: 'createdAt', description: '`-`: the greatest value first.' },
    ),
  }),
  response: Type.Object({
    keys: List(UsedKey),
    total: Type.Integer({ minimum: 0, description: 'Number of all keys of the API, whatever the filter.' }),
    cursor: Cursor,
  }),
  errors: ['NOT_FOUND'],
  example: { apiId: 'shop', limit: '25', sort: '-createdAt' },
  async handle({ request, caller }, services) {
    const { usage } = services;
    const { apiId, limit, cursor, sort, enabled, externalId, name, search } = withoutAliases(request);
    const order = sort === 'createdAt' ? 'asc' : sort === '-createdAt' ? 'desc' : sort;
    const filter: KeyFilter = {
      ...(enabled === undefined ? {} : { enabled: enabled === 'true' }),
      ...(externalId === undefined ? {} : { externalId }),
      ...(name === undefined ? {} : { namePrefix: name }),
      ...(search === undefined ? {} : { search }),
    };
    const listing = ['listKeys', apiId, order, filter] as const;
    const place = cursor === undefined ? undefined : placeIn(openCursor(listing, cursor, PLACE));
    const page = await readPage(services, caller.id, apiId, filter, Number(limit), order, place);
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
      ...(page.next ? { cursor: makeCursor(listing, `${page.next.number}:${page.next.value}`) } : {}),
    };
  },
});

async function readPage(
  { view, orderedKeys }: Pick<Services, 'view' | 'orderedKeys'>,
  caller: string,
  apiId: string,
  filter: KeyFilter,
  limit: number,
  order: Order,
  place: Place | undefined,
) {
  if (order !== 'asc' && order !== 'desc')
    return orderedKeys.list(caller, apiId, filter, limit, order, place);
  const page = await view.list(apiId, filter, limit, order, place?.number);
  return page && { ...page, next: page.next === undefined ? undefined : { number: page.next, value: '' } };
}

const placeIn = ([number, value = '']: readonly string[]): Place => ({ number: Number(number), value });
