import { Type } from 'typebox';
import { PersonSchema } from '../../../core/person.ts';
import { Id, List, Time } from '../../../core/schemas/field-schemas.ts';
import { operation } from '../operation.ts';
import { Fields } from '../request-parts.ts';

export const listSessions = operation({
  name: 'rootKeys.listSessions',
  summary: 'List sessions of the dashboard',
  description: 'Shows who is signed in, in order of the beginning.',
  permissions: ['root.*.read_root_key'],
  request: Fields({}),
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
  }),
  errors: [],
  example: {},
  handle: async (_call, { sessions }) => ({ sessions: await sessions.list() }),
});
