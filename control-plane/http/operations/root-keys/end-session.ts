import { Type } from 'typebox';
import { ApiError } from '#shared/contract/errors.ts';
import { operation } from '../operation.ts';
import { Fields } from '../request-parts.ts';
import { requireCovered } from './coverage.ts';

export const endSession = operation({
  name: 'rootKeys.endSession',
  summary: 'End a session of the dashboard',
  description: 'Its next call is refused. The root key stays.',
  permissions: ['root.*.update_root_key'],
  request: Fields({
    sessionId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,80}$', description: 'From listSessions.' }),
  }),
  response: Type.Object({}),
  errors: ['NOT_FOUND'],
  example: { sessionId: 'session_0mzc9k4q8r2wfXa1Bc2d' },
  neverShed: true,
  async handle(call, { rootKeys, sessions }) {
    const { sessionId } = call.request;
    const rootKeyId = await sessions.rootKeyOf(sessionId);
    if (rootKeyId === undefined) throw new ApiError('NOT_FOUND', `session ${sessionId} not found`);
    const rootKey = await rootKeys.get(rootKeyId);
    // A root key of the configuration has all permissions.
    requireCovered(call.caller, rootKey?.permissions ?? ['*']);
    call.note({ rootKeyId }, { after: { sessionId } });
    await sessions.endById(sessionId);
    return {};
  },
});
