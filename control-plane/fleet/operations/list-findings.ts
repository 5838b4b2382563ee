import { Type } from 'typebox';
import { operation } from '../../serve/operation.ts';
import { Fields } from '../../serve/request-parts.ts';
import { List } from '../../serve/schemas/field-schemas.ts';

export const listFindings = operation({
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
  async handle(_call, { examine }) {
    const findings = await examine();
    return { findings: findings.map(({ found: result, ...finding }) => ({ ...finding, result })) };
  },
});
