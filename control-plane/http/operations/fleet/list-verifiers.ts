import { Type } from 'typebox';
import { Cursor, List } from '../../../core/schemas/field-schemas.ts';
import { Verifier } from '../../../redis/fleet.ts';
import { operation } from '../operation.ts';
import { Fields, Limit, PageCursor } from '../request-parts.ts';

export const listVerifiers = operation({
  name: 'fleet.listVerifiers',
  summary: 'List the verifiers',
  description: 'Shows the latest report of each, in order of start.',
  permissions: ['root.*.read_fleet'],
  request: Fields({ limit: Limit('Verifiers'), cursor: PageCursor({ pattern: '^[A-Za-z0-9_-]{1,64}$' }) }),
  response: Type.Object({ verifiers: List(Verifier), cursor: Cursor }),
  errors: [],
  example: {},
  async handle({ request: { limit, cursor = '' } }, { fleet }) {
    const { verifiers, next } = await fleet.list(cursor, Number(limit));
    return { verifiers, ...(next === undefined ? {} : { cursor: next }) };
  },
});
