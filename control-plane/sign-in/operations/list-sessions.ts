import { Type } from 'typebox';
import { makeCursor, openCursor } from '../../serve/cursor.ts';
import { operation } from '../../serve/operation.ts';
import { Fields, Limit, PageCursor } from '../../serve/request-parts.ts';
import { Cursor, Id, List, Time } from '../../serve/schemas/field-schemas.ts';
import { PersonSchema } from '../person.ts';

/** The session after which the page begins. */
const PLACE = /^(session_\w{1,64})$/;

export const listSessions = operation({
  name: 'rootKeys.listSessions',
  summary: 'List sessions of the dashboard',
  description:
    'Shows who is signed in, in order of the beginning. A page may be short and still have a cursor. A root key or person has at most 100 sessions: one more ends the oldest.',
  permissions: ['root.*.read_root_key'],
  request: Fields({ limit: Limit('Sessions'), cursor: PageCursor({ minLength: 1, maxLength: 128 }) }),
  response: Type.Object({
    sessions: List(
      Type.Object({
        sessionId: Id('the session'),
        rootKeyId: Type.Optional(Id('the root key that began it')),
        person: Type.Optional(PersonSchema),
        address: Type.String({ description: 'The address of the browser that began it.' }),
        createdAt: Time('When it began'),
      }),
    ),
    cursor: Cursor,
  }),
  errors: [],
  example: {},
  async handle({ request: { limit, cursor } }, { sessions }) {
    const listing = ['listSessions'] as const;
    const [after] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE);
    const { next, ...page } = await sessions.list(Number(limit), after);
    return { ...page, ...(next === undefined ? {} : { cursor: makeCursor(listing, next) }) };
  },
});
