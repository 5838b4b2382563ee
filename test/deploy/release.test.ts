import { execFileSync, spawnSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bareEnv } from '../harness/bare-machine.ts';
import { skippedWithout } from '../harness/programs.ts';
import { COMMIT, checkout, release, released } from './release-files.ts';

const noSsh = skippedWithout('ssh-keygen');

const ROOT = join(import.meta.dirname, '..', '..');
const [, recipe = '', check = ''] = [
  ...readFileSync(join(ROOT, 'deploy/releasing.md'), 'utf8').matchAll(/```sh\n([\s\S]*?)```/g),
].map(([, code]) => code ?? '');
let folder: string;
/** Where the project is released as the page says. */
let home: string;
/** What became of a release without its proofs. */
let unproved: ReturnType<typeof spawnSync>;
let one: ReturnType<typeof release>;
let two: ReturnType<typeof release>;
const sh = (script: string) =>
  execFileSync('sh', ['-ec', script], { cwd: home, encoding: 'utf8', env: bareEnv(COMMIT), stdio: 'pipe' });
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'keyfence-release-'));
  home = checkout(join(folder, 'keyfence'));
  const changelog = join(home, 'CHANGELOG.md');
  const heading = '## [Unreleased]\n';
  const text = readFileSync(changelog, 'utf8').replace(heading, `${heading}\n- Something new.\n`);
  writeFileSync(changelog, text);
  sh('git commit -qam "Something new"');
  unproved = spawnSync('npm', ['version', 'minor'], { cwd: home, encoding: 'utf8', env: bareEnv(COMMIT) });
  const commit = sh('git rev-parse --short=10 HEAD').trim();
  const line = { date: '2026-01-02', commit, seed: 0, seeds: 1, answers: 0, faults: 0, violations: 0 };
  for (const proof of ['everything', 'upgrade', 'kubernetes'])
    appendFileSync(
      join(home, 'test/proof/proofs.ndjson'),
      `${JSON.stringify({ ...line, proof, minutes: 1 })}\n`,
    );
  for (const of of ['single', 'sentinel', 'cluster', 'regions']) {
    const proof = `chaos ${of}`;
    appendFileSync(
      join(home, 'test/proof/proofs.ndjson'),
      `${JSON.stringify({ ...line, proof, minutes: 15 })}\n`,
    );
  }
  sh('git commit -qm "Note the proofs" test/proof/proofs.ndjson');
  // No registry of images and no remote is in reach; `image-build.test.ts` builds the image.
  sh(recipe.replace(/--base \S+/, '--no-image').replace(/^git push .*$/m, ''));
  one = released(join(folder, 'keyfence-release'));
  sh('git clone -q . ../two && cp .git/info/exclude ../two/.git/info/ && cp -P node_modules ../two');
  const before = process.umask(0o077);
  try {
    const elsewhere = { TZ: 'Asia/Kathmandu', LC_ALL: 'C.UTF-8', HOME: folder };
    two = release(join(folder, 'two'), ['--no-image'], elsewhere);
  } finally {
    process.umask(before);
  }
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('a release is made as releasing.md says', () => {
  const { version: old } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const [major, minor] = old.split('.').map(Number);
  const next = `${major}.${minor + 1}.0`;
  const escaped = (version: string) => version.replaceAll('.', '\\.');
  expect(sh(check)).toBe(
    [
      `chart/keyfence-${next}.tgz`,
      'manifest.json',
      `npm/keyfence-${next}.tgz`,
      `npm/keyfence-revocation-${next}.tgz`,
      `npm/keyfence-server-${next}.tgz`,
      'sbom.json',
    ]
      .map((name) => `${name}: OK\n`)
      .join(''),
  );
  const git = (...args: string[]) =>
    execFileSync('git', args, { cwd: home, encoding: 'utf8', stdio: 'pipe' }).trim();
  expect(git('tag')).toBe(`v${next}`);
  expect(git('status', '--porcelain', '--untracked-files=no')).toBe('');
  expect(git('show', `v${next}:CHANGELOG.md`)).toMatch(
    new RegExp(`\n## \\[Unreleased\\]\n\n## \\[${escaped(next)}\\] - \\d{4}-\\d\\d-\\d\\d\n`),
  );
  expect(JSON.parse(git('show', `v${next}:verifier/openapi.json`)).info.version).toBe(next);
  expect(git('show', `v${next}:deploy/helm/keyfence/Chart.yaml`)).toMatch(
    new RegExp(`^version: ${escaped(next)}\nappVersion: ${escaped(next)}$`, 'm'),
  );
  const past = escaped(old);
  expect(sh(`git grep -nE 'keyfence:${past}|(VERSION|newTag): ${past}' v${next} -- deploy || true`)).toBe('');
});

test('a release without its proofs is refused, and each is named', () => {
  expect(unproved.status).not.toBe(0);
  for (const name of ['everything', 'upgrade', 'kubernetes', 'chaos single: 0 of 10', 'chaos: 0 of 60'])
    expect(String(unproved.stderr)).toContain(name);
});

test('a release has the same bytes elsewhere', () => {
  expect(two.sums).toBe(one.sums);
  expect(two.sums).toMatch(/^[0-9a-f]{64} {2}chart\/keyfence-\S+\.tgz$/m);
});

test('has true checksums and tells its making', () => {
  execFileSync('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: one.folder, stdio: 'pipe' });
  const { version } = one.manifest;
  const revision = execFileSync('git', ['rev-parse', 'HEAD'], { cwd: home, encoding: 'utf8' });
  expect(one.manifest).toMatchObject({
    revision: revision.trim(),
    time: '2026-01-02T03:04:05.000Z',
    madeWith: { node: process.versions.node },
    images: [],
  });
  const names = one.manifest.files.map(({ name }: { name: string }) => name);
  expect(names).toEqual([
    `chart/keyfence-${version}.tgz`,
    `npm/keyfence-${version}.tgz`,
    `npm/keyfence-revocation-${version}.tgz`,
    `npm/keyfence-server-${version}.tgz`,
    'sbom.json',
  ]);
  const inside = (name: string) =>
    execFileSync('tar', ['-tzf', join(one.folder, name)], { encoding: 'utf8' }).split('\n');
  expect(inside(names[0])).toContain('keyfence/Chart.yaml');
  expect(inside(names[1])).toContain('package/verifier/exports-verifier.js');
  expect(inside(names[2])).toContain('package/revocation.js');
  expect(inside(names[3])).toContain('package/verifier/main.js');
});

test.skipIf(noSsh)(`a signature holds for these bytes only${noSsh}`, () => {
  const page = readFileSync(join(ROOT, 'deploy/releasing.md'), 'utf8');
  const [, , , sign = '', verify = ''] = [...page.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, code]) => code);
  const key = join(folder, 'signing-key');
  execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', key]);
  const signers = join(folder, 'signers');
  writeFileSync(signers, `keyfence ${readFileSync(`${key}.pub`, 'utf8')}`);
  const env = { ...process.env, SIGNING_KEY: key, SIGNERS: signers, RELEASE: one.folder };
  const run = (script: string) => spawnSync('sh', ['-ec', script], { encoding: 'utf8', env });
  expect(run(sign).status).toBe(0);
  expect(run(verify)).toMatchObject({
    status: 0,
    stdout: expect.stringContaining('Good "keyfence" signature'),
  });
  appendFileSync(join(one.folder, 'SHA256SUMS'), '\n');
  expect(run(verify).status).not.toBe(0);
});

test.each([
  ['neither image nor --no-image', [], '--base or --no-image: one of them'],
  ['a base that may change', ['--base', 'docker.io/library/node:24'], '--base: must end with the digest'],
  ['a folder that is there', ['--no-image'], 'is there already'],
])('%s is refused, and nothing is written', (_, options, reason) => {
  const target = join(folder, 'refused');
  if (reason.includes('already')) mkdirSync(target);
  const { status, stderr } = run('keyfence', [target, ...options]);
  expect([status, stderr]).toEqual([2, expect.stringContaining(reason)]);
  expect(existsSync(join(target, 'SHA256SUMS'))).toBe(false);
});

test('a checkout with changes is refused', () => {
  writeFileSync(join(folder, 'two', 'README.md'), 'changed');
  const { status, stderr } = run('two', [join(folder, 'changed'), '--no-image']);
  expect([status, stderr]).toEqual([2, expect.stringContaining('The checkout has changes')]);
});

function run(name: string, args: readonly string[]) {
  return spawnSync(process.execPath, ['deploy/image/artifacts.ts', ...args], {
    cwd: join(folder, name),
    encoding: 'utf8',
  });
}
