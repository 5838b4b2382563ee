import { execFile, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ENVIRONMENT } from '../../bench/clients/programs.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { lacking } from '../harness/programs.ts';

const isMissing =
  spawnSync('python3', ['-c', 'import unkey.py'], { env: ENVIRONMENT, stdio: 'ignore' }).status !== 0;

describe.skipIf(isMissing)(
  `the Python client of today${lacking(isMissing ? ['python3 unkey.py'] : [])}`,
  () => {
    let fleet: Fleet;
    beforeAll(async () => {
      fleet = await Fleet.start({ verifiers: 0, env: { LOOKUP_WAIT_MS: '5000' } });
      await fleet.addVerifier({ CONTROL_PLANE_URL: fleet.controlPlanes[0]?.address ?? '' });
    });
    afterAll(() => fleet.stop());

    test('manages and verifies keys at one address', async () => {
      const program = join(import.meta.dirname, 'unkey_client.py');
      const address = fleet.verifiers[0]?.address ?? '';
      const { stdout } = await promisify(execFile)('python3', [program, address, ROOT_KEY, 'shop'], {
        env: ENVIRONMENT,
      });
      const lines = stdout.trim().split('\n');
      const answers = Object.fromEntries(
        lines.map((line) => {
          const { name, value } = JSON.parse(line) as { name: string; value: unknown };
          return [name, value];
        }),
      );
      const id = expect.stringMatching(/^identity_/);
      const limit = { name: 'requests', limit: 100, duration: 60_000, autoApply: false };
      const identity = { id, externalId: 'ada', ratelimits: [expect.objectContaining(limit)] };
      const key = { enabled: true, name: 'Ada', permissions: ['files.read'] };
      expect(answers).toMatchObject({
        identity: { ...identity, meta: { plan: 'pro' } },
        changed: { ...identity, meta: { plan: 'free' } },
        listed: ['ada', 'bob'],
        key: { ...key, credits: { remaining: 10 }, identity: { externalId: 'ada' } },
        verified: { ...key, valid: true, code: 'VALID', credits: 8 },
        disabled: { valid: false, code: 'DISABLED' },
        cleared: { enabled: false, permissions: ['files.read'] },
        absent: [404, 'NotFoundErrorResponse', { status: 404, title: 'Not Found' }],
        twice: [409, 'ConflictErrorResponse', { status: 409 }],
        wrong: [400, 'BadRequestErrorResponse', { errors: [{ location: 'body.apiId' }] }],
      });
      expect(answers['cleared']).not.toHaveProperty('name');
    });
  },
);
