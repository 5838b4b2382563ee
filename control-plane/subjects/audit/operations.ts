import { Type } from 'typebox';
import { Event } from '../../core/schema/audit-event.ts';
import { Cursor, Limit, makeCursor, openCursor, PageCursor } from '../../core/schema/lists.ts';
import { ApiId, Fields, KeyId, List, Moment, timeOf } from '../../core/schema/primitives.ts';
import { operation } from '../../core/serve/operation.ts';
import type { Audit } from './audit.ts';

/** The event after which the page begins. */
const PLACE = /^([1-9][0-9]{0,14}-[0-9]{1,15})$/;

const listEvents = operation({
  name: 'audit.listEvents',
  kind: 'query',
  summary: 'List calls that changed something or were refused',
  description: 'The latest come first. With a filter, a page may be short and still have a cursor.',
  permissions: ['root.*.read_audit'],
  request: Fields({
    limit: Limit('Events'),
    cursor: PageCursor({ minLength: 1, maxLength: 64 }),
    refused: Type.Union([Type.Literal('true'), Type.Literal('false')], {
      default: 'false',
      description: 'true: refused calls. false: calls that changed something, or may have.',
    }),
    since: Moment('older events are left out.'),
    until: Moment('newer events are left out.'),
    operation: Type.Optional(
      Type.String({ pattern: '^[A-Za-z]{1,32}\\.[A-Za-z]{1,32}$', description: 'Such as keys.updateKey.' }),
    ),
    apiId: Type.Optional(ApiId),
    keyId: Type.Optional(KeyId),
    identityId: Type.Optional(
      Type.String({ pattern: '^[A-Za-z0-9_-]{1,80}$', description: 'Events about this identity.' }),
    ),
    rootKeyId: Type.Optional(
      Type.String({
        pattern: '^[A-Za-z0-9_-]{1,80}$',
        description: 'The root key that called, or the person (personId).',
      }),
    ),
  }),
  response: Type.Object({ events: List(Event), cursor: Cursor }),
  errors: [],
  example: { operation: 'keys.createKey', limit: '25' },
  async handle({ request }, { audit }: { audit: Audit }) {
    const { limit, cursor, refused, since, until, ...filter } = request;
    const kind = refused === 'true' ? 'refused' : 'done';
    // Not of `since`: whoever asks for the last two hours goes on from another moment.
    const listing = ['listEvents', kind, filter] as const;
    const [after] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE);
    const { events, next } = await audit.list(
      kind,
      filter,
      Number(limit),
      after,
      timeOf(since),
      timeOf(until),
    );
    return { events, ...(next === undefined ? {} : { cursor: makeCursor(listing, next) }) };
  },
});

export const auditOperations = [listEvents] as const;
