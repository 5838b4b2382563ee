import { Type } from 'typebox';
import { makeCursor, openCursor } from '../../serve/cursor.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, Limit, PageCursor, Search } from '../../serve/request-parts.ts';
import { Count } from '../../serve/response-parts.ts';
import { Cursor, List } from '../../serve/schemas/field-schemas.ts';
import { IdentityView } from './identity.ts';

const SEARCH = Search('the `externalId` or the id');
/** The creation number at which the page begins. */
const PLACE = /^identity:(\d{1,15})$/;

export const listIdentities = operation({
  name: 'identities.listIdentities',
  summary: 'List all identities',
  description: 'Shows them in order of creation. With `search`, a page may be short and still have a cursor.',
  permissions: ['root.*.read_identity'],
  request: Fields({
    limit: Limit('Identities'),
    cursor: PageCursor({ minLength: 1, maxLength: 64 }),
    search: SEARCH,
  }),
  response: Type.Object({
    identities: List(IdentityView),
    total: Count('Number of all identities.'),
    cursor: Cursor,
  }),
  errors: [],
  example: { limit: '25' },
  async handle({ request: { limit, cursor, search } }, { identities }) {
    const listing = ['listIdentities', search] as const;
    const [from] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE);
    const { next, ...page } = await identities.list(
      Number(limit),
      from === undefined ? undefined : Number(from),
      search,
    );
    return { ...page, ...(next === undefined ? {} : { cursor: makeCursor(listing, `identity:${next}`) }) };
  },
});
