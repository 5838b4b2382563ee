import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { requireCovered } from '../../root-keys/coverage.ts';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';

export const endSession = operation({
  name: 'rootKeys.endSession',
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
  async handle(call, { sessions }) {
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
