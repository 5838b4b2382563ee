import { Type } from 'typebox';
import { operation } from '../serve/operation.ts';
import { Cursor, Fields, Limit, List, makeCursor, openCursor, PageCursor } from '../serve/schemas.ts';
import type { Finding } from './examination.ts';
import { type FleetView, Verifier } from './fleet.ts';

const listFindings = operation({
  name: 'fleet.listFindings',
  summary: 'Examine Redis and the verifiers',
  description:
    'Checks the settings of Redis, and that the verifiers fit together and fit the keys. `keyfence doctor` runs the same checks, and some more.',
  permissions: ['root.*.read_fleet'],
  request: Fields({}),
  response: Type.Object({
    findings: List(
      Type.Object({
        check: Type.String({ description: 'What was examined.' }),
        result: Type.String(),
        change: Type.Optional(Type.String({ description: 'What to change; absent = nothing.' })),
      }),
    ),
  }),
  errors: [],
  example: {},
  async handle(_call, { examine }: { examine: () => Promise<readonly Finding[]> }) {
    const findings = await examine();
    return { findings: findings.map(({ found: result, ...finding }) => ({ ...finding, result })) };
  },
});

/** The verifier after which the page begins. */
const PLACE = /^([A-Za-z0-9_-]{1,64})$/;

const listVerifiers = operation({
  name: 'fleet.listVerifiers',
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

export const fleetOperations = [listFindings, listVerifiers] as const;
