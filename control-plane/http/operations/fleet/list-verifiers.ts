import { Type } from 'typebox';
import { Cursor, List } from '../../../core/schemas/field-schemas.ts';
import { Verifier } from '../../../redis/fleet.ts';
import { makeCursor, openCursor } from '../cursor.ts';
import { operation } from '../operation.ts';
import { Fields, Limit, PageCursor } from '../request-parts.ts';

/** The verifier after which the page begins. */
const PLACE = /^([A-Za-z0-9_-]{1,64})$/;

export const listVerifiers = operation({
  name: 'fleet.listVerifiers',
  summary: 'List the verifiers',
  description: 'Shows the latest report of each, in order of start.',
  permissions: ['root.*.read_fleet'],
  request: Fields({ limit: Limit('Verifiers'), cursor: PageCursor({ minLength: 1, maxLength: 128 }) }),
  response: Type.Object({ verifiers: List(Verifier), cursor: Cursor }),
  errors: [],
  example: {},
  async handle({ request: { limit, cursor } }, { fleet }) {
    const listing = ['listVerifiers'] as const;
    const [after = ''] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE);
    const { verifiers, next } = await fleet.list(after, Number(limit));
    return { verifiers, ...(next === undefined ? {} : { cursor: makeCursor(listing, next) }) };
  },
});
