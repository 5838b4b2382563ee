import { Type } from 'typebox';
import { makeCursor, openCursor } from '../../serve/cursor.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, Limit, PageCursor } from '../../serve/request-parts.ts';
import { Cursor, List } from '../../serve/schemas/field-schemas.ts';
import { Verifier } from '../fleet.ts';

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
