import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ENVIRONMENT, QUICKLY_STARTED } from '../../bench/clients/programs.ts';
import { Fleet } from '../harness/fleet.ts';
import { lacking, type Program } from '../harness/programs.ts';

const PAGE = readFileSync(join(import.meta.dirname, '../../verifier/doors/http/other-languages.md'), 'utf8');
const blocks = [...PAGE.matchAll(/```(\w+)\n([\s\S]*?)```/g)].map(([, language, code]) => ({
  language,
  code,
}));

/** How each example of the page is run, in the page's order. */
const RUNS: readonly { name: string; program: Program; probe: string[]; file: string; command: string[] }[] =
  [
    { name: 'curl', program: 'curl', probe: ['curl', '-V'], file: 'ask.sh', command: ['sh', 'ask.sh'] },
    {
      name: 'Python',
      program: 'python3 http.client',
      probe: ['python3', '-V'],
      file: 'ask.py',
      command: ['python3', 'ask.py'],
    },
    {
      name: "Python's client of version 2",
      program: 'python3 unkey.py',
      probe: ['python3', '-c', 'import unkey.py'],
      file: 'client.py',
      command: ['python3', 'client.py'],
    },
    { name: 'Go', program: 'go', probe: ['go', 'version'], file: 'ask.go', command: ['go', 'run', 'ask.go'] },
    {
      name: 'Java',
      program: 'javac',
      probe: ['javac', '-version'],
      file: 'Verify.java',
      command: ['java', 'Verify.java'],
    },
  ];

let fleet: Fleet;
let directory: string;
let env: Record<string, string | undefined>;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'keyfence-languages-'));
  fleet = await Fleet.start({ verifiers: 0 });
  const socket = join(directory, 'verifier.sock');
  const { address } = await fleet.addVerifier({ LOOKUP_WAIT_MS: '5000', LISTEN_UNIX: socket });
  env = { ...QUICKLY_STARTED, VERIFIER_URL: address, VERIFIER_SOCKET: socket };
});
afterAll(async () => {
  await fleet.stop();
  rmSync(directory, { recursive: true, force: true });
});

test('has one example for each way to run one', () => {
  expect(blocks).toHaveLength(RUNS.length);
});

RUNS.forEach(
  ({ name, program, probe: [file = '', ...args], file: source, command: [run = '', ...rest] }, i) => {
    const isMissing = spawnSync(file, args, { env: ENVIRONMENT, stdio: 'ignore' }).status !== 0;
    test.skipIf(isMissing)(
      `the example for ${name} tells verdicts${lacking(isMissing ? [program] : [])}`,
      async () => {
        writeFileSync(join(directory, source), blocks[i]?.code ?? '');
        const ask = async (key: string) => {
          const options = { cwd: directory, env: { ...env, KEY: key } };
          const { stdout } = await promisify(execFile)(run, [...rest, key], options);
          return stdout;
        };
        const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
        await fleet.until(async () => (await fleet.verify(key)).body.code === 'VALID');
        // The examples wait for a second, in which a busy machine may not even have started them.
        await fleet.until(async () => (await ask(key)).includes(keyId));
        await fleet.ok('keys.updateKey', { keyId, enabled: false });
        await fleet.until(async () => (await ask(key)).includes('DISABLED'));
        const nobody = {
          ...env,
          VERIFIER_URL: 'http://127.0.0.1:9',
          VERIFIER_SOCKET: join(directory, 'none'),
        };
        const options = { cwd: directory, env: { ...nobody, KEY: key } };
        await expect(promisify(execFile)(run, [...rest, key], options)).rejects.toMatchObject({ stdout: '' });
      },
    );
  },
);
