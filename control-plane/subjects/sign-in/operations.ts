import { Type } from 'typebox';
import { ApiError } from '#shared/rules/errors.ts';
import { requireCovered } from '../../core/callers/coverage.ts';
import type { Sessions } from '../../core/callers/sessions.ts';
import { Cursor, Limit, makeCursor, openCursor, PageCursor } from '../../core/schema/lists.ts';
import { PersonSchema } from '../../core/schema/person.ts';
import { Fields, Id, List, Time } from '../../core/schema/primitives.ts';
import { operation } from '../../core/serve/operation.ts';

/** The session after which the page begins. */
const PLACE = /^(session_\w{1,64})$/;

const listSessions = operation({
  name: 'rootKeys.listSessions',
  kind: 'query',
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
  async handle({ request: { limit, cursor } }, { sessions }: { sessions: Sessions }) {
    const listing = ['listSessions'] as const;
    const [after] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE);
    const { next, ...page } = await sessions.list(Number(limit), after);
    return { ...page, ...(next === undefined ? {} : { cursor: makeCursor(listing, next) }) };
  },
});

const endSession = operation({
  name: 'rootKeys.endSession',
  kind: 'change',
  stops: 'always',
  summary: 'End a session of the dashboard',
  description: 'Its next call is refused. The root key stays, and the person can sign in again.',
  permissions: ['root.*.update_root_key'],
  request: Fields({
    sessionId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,80}$', description: 'From listSessions.' }),
  }),
  response: Type.Object({}),
  errors: ['NOT_FOUND'],
  example: { sessionId: 'session_0mzc9k4q8r2wfXa1Bc2d' },
  neverShed: true,
  async handle(call, { sessions }: { sessions: Sessions }) {
    const { sessionId } = call.request;
    const beginner = await sessions.beginnerOf(sessionId);
    if (!beginner) throw new ApiError('NOT_FOUND', `session ${sessionId} not found`);
    const { rootKeyId, person, permissions } = beginner;
    requireCovered(call.caller, permissions);
    call.note(rootKeyId === undefined ? {} : { rootKeyId }, {
      after: { sessionId, ...(person ? { personId: person.personId } : {}) },
    });
    await sessions.endById(sessionId);
    return {};
  },
});

export const sessionOperations = [listSessions, endSession] as const;
