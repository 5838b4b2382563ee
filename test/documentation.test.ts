import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { documents } from '../deploy/dev/docs.ts';
import { bareEnv, SHELLS } from './bare-machine.ts';
import { Fleet, ROOT_KEY } from './fleet.ts';

const ROOT = join(import.meta.dirname, '..');
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
const commands = [...readme.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block]) => block?.trim() ?? '');

test('tables of settings, errors and metrics, and alerts in the form of Kubernetes, are as the code says', async () => {
  for (const { file, present, wanted } of await documents())
    expect(present, `${file}: run npm run docs`).toBe(wanted);
});

test('every metric that a running process serves is in its table', async () => {
  const fleet = await Fleet.start();
  try {
    for (const [process, file] of [
      [fleet.controlPlanes[0], 'control-plane/README.md'],
      [fleet.verifiers[0], 'verifier/README.md'],
    ] as const) {
      const { body } = await fleet.get(`${process?.adminAddress}/metrics`);
      const names = [...String(body).matchAll(/^# TYPE (keyfence_\w+)/gm)].map(([, name]) => name);
      expect(names.length).toBeGreaterThan(5);
      const text = readFileSync(join(ROOT, file), 'utf8');
      for (const name of names) expect(text).toContain(`\`${name}\``);
    }
  } finally {
    await fleet.stop();
  }
});

test('every link in the documentation leads to a file', () => {
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '*.md'], {
    cwd: ROOT,
    encoding: 'utf8',
  })
    .trim()
    .split('\n');
  for (const file of files) {
    const text = readFileSync(join(ROOT, file), 'utf8');
    for (const [, target] of text.matchAll(/\]\((?!https?:)([^)#]+)/g)) {
      const path = join(ROOT, file, '..', target ?? '');
      expect(() => readFileSync(path), `${file} → ${target}`).not.toThrow(/ENOENT/);
    }
  }
});

test('a Node that is too old is told what to install, before anything else is tried', () => {
  const { status, stderr } = spawnSync('node', ['deploy/dev/node-version.js'], {
    cwd: ROOT,
    env: bareEnv(),
    encoding: 'utf8',
  });
  const version = execFileSync('node', ['-p', 'process.versions.node'], {
    env: bareEnv(),
    encoding: 'utf8',
  }).trim();
  const isOld = Number.parseInt(version, 10) < 24;
  expect(status).toBe(isOld ? 1 : 0);
  if (isOld) expect(stderr).toMatch(`Node 24 or newer; this is ${version}.`);
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  expect(scripts['prestart']).toMatch(/ && node deploy\/dev\/node-version\.js$/);
  expect(scripts['pretest']).toMatch(/^npm run --silent prestart && /);
});

test('the top level is what the README says, and nothing else', () => {
  const hidden = /^\.|^node_modules$/;
  const files = readdirSync(ROOT).filter((name) => !hidden.test(name));
  const expected =
    'CHANGELOG.md CONTRIBUTING.md LICENSE README.md SECURITY.md bench biome.json control-plane deploy knip.json package-lock.json package.json shared test tsconfig.json verifier vitest.config.ts';
  expect(expected.split(' ')).toEqual(expect.arrayContaining(files));
});

describe("the README's commands", () => {
  let fleet: Fleet;
  beforeAll(async () => {
    // A slow machine is not what is tested.
    fleet = await Fleet.start({ env: { LOOKUP_WAIT_MS: '5000' } });
  });
  afterAll(() => fleet.stop());

  test('are npm start and npm test, which other tests and CI run, and the five calls', () => {
    expect(commands[0]).toBe('npm start');
    expect(commands[1]).toBe('npm test');
    expect(commands).toHaveLength(3);
  });

  test.for(SHELLS)('work as they are written, in their order, in $name$skipped', async (shell, { skip }) => {
    skip(shell.missing, 'not on this machine');
    const before = (await fleet.admin('apis.listKeys', { apiId: 'shop' })).body.total ?? 0;
    const script = (commands[2] ?? '')
      .replaceAll('http://127.0.0.1:3000', fleet.controlPlanes[0]?.address ?? '')
      .replaceAll('http://127.0.0.1:3001', fleet.verifiers[0]?.address ?? '')
      .replace(
        /^(curl -s \S+keys\.createKey[\s\S]*?\n)(?=#)/m,
        (_, call: string) => `CREATED=$(${call.trim()}); echo "$CREATED"\n`,
      )
      .replace(
        '# a gateway',
        'KEY=$(node -p "($CREATED).key"); KEY_ID=$(node -p "($CREATED).keyId")\n# a gateway',
      );
    const { stdout } = await promisify(execFile)(
      shell.name,
      [...shell.options, `curl() { command curl "$@"; echo; }\n${script}`],
      { encoding: 'utf8', env: bareEnv({ ROOT_KEY }) },
    );
    const answers = stdout
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line));
    expect(answers).toEqual([
      { keyId: expect.any(String), key: expect.stringMatching(/^shop_/) },
      expect.objectContaining({ valid: true, code: 'VALID', apiId: 'shop', name: 'Ada' }),
      {
        propagation: expect.objectContaining({ state: 'complete', by: 'acks', durable: true, verifiers: 1 }),
      },
      expect.objectContaining({ enabled: false, start: expect.stringMatching(/^shop_/) }),
      expect.objectContaining({ total: before + 1 }),
    ]);
  });
});
