import { execFile } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { lacking, missingLine } from './programs.ts';

const ROOT = join(import.meta.dirname, '..', '..');

test('names each missing program once, with a fix', () => {
  expect(missingLine(['a test', 'another (skipped: needs Linux)'])).toBe('');
  expect(missingLine([`a${lacking(['haproxy'])} test`])).toBe(
    '1 test was skipped, because this machine has no haproxy. To install: sudo apt-get install haproxy',
  );
  const names = [
    `a${lacking(['php', 'helm'])}`,
    `b${lacking(['php', 'nginx'])}`,
    'c',
    `d${lacking(['envoy'])}`,
  ];
  expect(missingLine(names)).toBe(
    '3 tests were skipped, because this machine has no envoy, helm, nginx, php. To install: sudo apt-get install nginx php-cli && .ci/run && npm run build:helm',
  );
});

test('ends with that line without the programs', async () => {
  const bin = mkdtempSync(join(tmpdir(), 'keyfence-bin-'));
  try {
    symlinkSync(process.execPath, join(bin, 'node'));
    const files = ['test/deploy/systemd.test.ts', 'test/proof/model/model.test.ts'];
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', ...files],
      { cwd: ROOT, env: { HOME: process.env['HOME'], PATH: bin, NO_COLOR: '1' }, encoding: 'utf8' },
    );
    expect(stdout.trimEnd().split('\n').at(-1)).toMatch(
      /^\d\d tests were skipped, because this machine has no gcc, spin, systemd-analyze, systemd-sysusers\. To install: sudo apt-get install gcc spin systemd$/,
    );
  } finally {
    rmSync(bin, { recursive: true, force: true });
  }
});

/** What a clone and the walk of the README need anyway, POSIX, and what `npm test` itself makes sure of. */
const EVERYWHERE = new Set([
  ...['node', 'npm', 'git', 'curl', 'openssl', 'redis-server', 'redis-cli'],
  ...['sh', 'tar', 'find', 'grep', 'kill', 'ls', 'ps', 'which', 'sha256sum'],
]);

test('tests that need programs are skipped by name', () => {
  const faults = globSync('test/**/*.ts', { cwd: ROOT }).flatMap((file) => {
    // Those need a machine that has been prepared, and say so.
    if (file.startsWith('test/deploy/kubernetes/')) return [];
    const text = readFileSync(join(ROOT, file), 'utf8');
    const named = [...text.matchAll(/(?:skippedWithout|lacking)\(([^)]*)\)/g)].flatMap(
      ([, list = '']) => list.match(/[\w-]+/g) ?? [],
    );
    const started = text.matchAll(
      /\b(?:execFile|execFileSync|spawn|spawnSync|spawnBound)\)?\(\s*'([\w-]+)'/g,
    );
    return [...started]
      .map(([, program = '']) => program)
      .filter((program) => !EVERYWHERE.has(program) && !named.includes(program))
      .map((program) => `${file}: ${program}`);
  });
  expect(faults).toEqual([]);
});
