import { Type } from 'typebox';
import { API_ID_PATTERN } from '#shared/contract/api-id.ts';
import { makeCursor, openCursor } from '../../serve/cursor.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, Limit, PageCursor } from '../../serve/request-parts.ts';
import { Cursor, List } from '../../serve/schemas/field-schemas.ts';
import { ApiView, seenBy } from './api.ts';

/** The id after which the page begins; the caller may read that API. */
const PLACE = new RegExp(`^after:(${API_ID_PATTERN})$`);

export const listApis = operation({
  name: 'apis.listApis',
  summary: 'List APIs',
  description: 'Lists the APIs that the root key may read. A page may be short and still have a cursor.',
  permissions: ['api.<apiId>.read_api'],
  authorizesItself: true,
  request: Fields({ limit: Limit('APIs'), cursor: PageCursor({ minLength: 1, maxLength: 128 }) }),
  response: Type.Object({ apis: List(ApiView), cursor: Cursor }),
  errors: [],
  example: { limit: '25' },
  async handle({ request, caller }, { apis }) {
    const listing = ['listApis'] as const;
    const [after = ''] = request.cursor === undefined ? [] : openCursor(listing, request.cursor, PLACE);
    const limit = Number(request.limit);
    // If the caller may read only some APIs, read no others. Then neither a cursor nor the time taken nor a
    // short page reveals that others exist.
    const readableIds = caller.permissions.apisWith('read_api');
    const page = readableIds ? await apis.among(readableIds, after, limit) : await apis.list(after, limit);
    return {
      apis: page.apis.map((api) => seenBy(caller, api)),
      ...(page.next === undefined ? {} : { cursor: makeCursor(listing, `after:${page.next}`) }),
    };
  },
});
