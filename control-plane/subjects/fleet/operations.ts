import { Type } from 'typebox';
import type { HistoryWatch } from '#shared/protocol/history/history-watch.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { API_ID_PATTERN } from '#shared/rules/slugs.ts';
import { Cursor, Limit, makeCursor, openCursor, PageCursor } from '../../core/schema/lists.ts';
import { Fields, Id, List, Sequence } from '../../core/schema/primitives.ts';
import { operation } from '../../core/serve/operation.ts';
import { type FleetView, Verifier } from './fleet.ts';

/** The verifier after which the page begins. */
const PLACE = /^([A-Za-z0-9_-]{1,64})$/;

const listVerifiers = operation({
  name: 'fleet.listVerifiers',
  kind: 'query',
  summary: 'List the verifiers',
  description: 'Shows the latest report of each, in order of start.',
  permissions: ['root.*.read_fleet'],
  request: Fields({ limit: Limit('Verifiers'), cursor: PageCursor({ minLength: 1, maxLength: 128 }) }),
  response: Type.Object({ verifiers: List(Verifier), cursor: Cursor }),
  errors: [],
  example: {},
  async handle({ request: { limit, cursor } }, { fleet }: { fleet: FleetView }) {
    const listing = ['listVerifiers'] as const;
    const [after = ''] = cursor === undefined ? [] : openCursor(listing, cursor, PLACE);
    const { verifiers, next } = await fleet.list(after, Number(limit));
    return { verifiers, ...(next === undefined ? {} : { cursor: makeCursor(listing, next) }) };
  },
});

const acceptHistory = operation({
  name: 'fleet.acceptHistory',
  kind: 'change',
  summary: 'Accept an older state of Redis',
  description:
    'After a restore, Redis lacks changes that were complete and durable: disabled keys may be enabled again. So verifiers answer 503 for its APIs. First make these changes again; then this call lets verifiers follow the histories as they are. `fleet.listFindings` says what is missing.',
  permissions: ['root.*.accept_history'],
  request: Fields({
    apiId: Type.Optional(
      Type.String({
        pattern: `^(${API_ID_PATTERN}|${SHARED_LOG})$`,
        description:
          'Only the history of this API; `!ws`: of roles and identities. Absent: all that are refused.',
      }),
    ),
  }),
  response: Type.Object({
    accepted: List(
      Type.Object({
        apiId: Id('the API; `!ws`: roles and identities'),
        sequence: Sequence,
        lostSequence: Type.Integer({
          minimum: 0,
          description: 'The last change that was durable: those after `sequence` are missing.',
        }),
      }),
    ),
  }),
  errors: ['NOT_FOUND'],
  example: {},
  async handle(call, { historyWatch }: { historyWatch: HistoryWatch }) {
    const { apiId } = call.request;
    const accepted = await historyWatch.accept(apiId);
    if (apiId !== undefined && accepted.length === 0)
      throw new ApiError('NOT_FOUND', `apiId: the history of ${apiId} is not refused`);
    call.note({}, { after: { accepted } });
    return { accepted };
  },
});

export const fleetOperations = [listVerifiers, acceptHistory] as const;
