import { Type } from 'typebox';
import { Cursor, List } from '../../../core/schemas/field-schemas.ts';
import { makeCursor, openCursor } from '../cursor.ts';
import { operation } from '../operation.ts';
import { Fields, Limit, PageCursor } from '../request-parts.ts';
import { Count } from '../response-parts.ts';
import { IdentityView } from './identity.ts';

/** The creation number at which the page begins. */
const PLACE = /^identity:(\d{1,15})$/;

export const listIdentities = operation({
  name: 'identities.listIdentities',
  summary: 'List all identities',
  description: 'Shows them in order of creation.',
  permissions: ['root.*.read_identity'],
  request: Fields({ limit: Limit('Identities'), cursor: PageCursor({ minLength: 1, maxLength: 64 }) }),
  response: Type.Object({ identities: List(IdentityView), total: Count('All identities.'), cursor: Cursor }),
  errors: [],
  async handle({ request: { limit, cursor } }, { identities }) {
    const [from] = cursor === undefined ? [] : openCursor(cursor, PLACE, 'listIdentities');
    const { next, ...page } = await identities.list(
      Number(limit),
      from === undefined ? undefined : Number(from),
    );
    return { ...page, ...(next === undefined ? {} : { cursor: makeCursor(`identity:${next}`) }) };
  },
});
