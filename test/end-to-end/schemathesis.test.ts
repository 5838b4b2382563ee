import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ENVIRONMENT } from '../../bench/clients/programs.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { lacking } from '../harness/programs.ts';
import { share } from '../harness/share.ts';

/**
 * Schemathesis reads the documents and sends what fits them and what does not; no answer may be a fault of ours, and each
 * must be one that the document has. With SCHEMATHESIS_EXAMPLES, such as 100, it searches so many times as long, and spoils
 * each field of the first generation one by one, too.
 */
const { SCHEMATHESIS_EXAMPLES: EXAMPLES } = process.env;
const CHECKS = [
  ...['not_a_server_error', 'status_code_conformance'],
  ...['content_type_conformance', 'response_schema_conformance', 'response_headers_conformance'],
];
const PHASES = 'examples,coverage,fuzzing';
/** One of them a run, the other at the next commit. */
const CONTROL_PLANES = [
  ['the control plane, v1', 'controlPlanes', '/openapi.json', 'examples,fuzzing'],
  ['the control plane, v2', 'controlPlanes', '/openapi-v2.json', PHASES],
] as const;
const isMissing =
  spawnSync('python3', ['-c', 'import schemathesis'], { env: ENVIRONMENT, stdio: 'ignore' }).status !== 0;

describe.skipIf(isMissing)(
  `schemathesis${lacking(isMissing ? ['python3 schemathesis'] : [])} finds no fault`,
  () => {
    let fleet: Fleet;
    beforeAll(async () => {
      const patient = { REDIS_COMMAND_TIMEOUT_MS: '60000', REDIS_CONNECT_TIMEOUT_MS: '60000' };
      fleet = await Fleet.start({
        env: { ...patient, LOOKUP_WAIT_MS: '10000', LEASE_MS: '30000', ROOT_KEY_CALLS_PER_MINUTE: '0' },
      });
    });
    afterAll(() => fleet.stop());

    test.each([
      ...share(CONTROL_PLANES, CONTROL_PLANES.length),
      ['a verifier', 'verifiers', '/openapi.json', PHASES],
    ] as const)('with %s', async (_, part, path, phases) => {
      const address = fleet[part][0]?.address ?? '';
      const args = [
        ...[
          '-m',
          'schemathesis.cli',
          'run',
          `${address}${path}`,
          '--header',
          `Authorization: Bearer ${ROOT_KEY}`,
        ],
        ...['--checks', CHECKS.join(','), '--phases', EXAMPLES ? PHASES : phases, '--seed', '20261125'],
        ...[
          '--max-examples',
          EXAMPLES ?? '3',
          '--workers',
          '2',
          '--generation-database',
          'none',
          '--no-color',
        ],
      ];
      const run = promisify(execFile)('python3', args, {
        env: ENVIRONMENT,
        cwd: fleet.directory,
        maxBuffer: 2 ** 26,
      });
      const { stdout } = await run.catch((error: { stdout: string }) => error);
      const [, cases, passed] = /(\d+) generated, (\d+) passed/.exec(stdout) ?? [];
      expect(passed, stdout).toBe(cases);
      expect(Number(passed), stdout).toBeGreaterThan(50);
    });
  },
);
