import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const run = (...args: string[]) =>
  spawnSync(process.execPath, ['bench/costs/capacity.ts', ...args], { cwd: ROOT, encoding: 'utf8' });

test('says what the page shows', () => {
  const page = readFileSync(join(ROOT, 'deploy/scaling.md'), 'utf8');
  const [, command = '', shown = ''] =
    /npm run --silent capacity -- (.*)\n```\n\n```text\n([\s\S]*?)```/.exec(page) ?? [];
  const { stdout, status } = run(...command.split(' '));
  expect(stdout).toBe(shown);
  expect(status).toBe(0);
});

test('more keys or verifiers need more', () => {
  const memoryOf = (...more: string[]) => {
    const { stdout } = run('--keys', '1e6', '--verifiers', '10', '--rps', '100', ...more);
    return Number(/memory of the data +([\d.]+) GiB/.exec(stdout)?.[1]);
  };
  expect(memoryOf('--keys', '9e6')).toBeGreaterThan(8 * memoryOf());
  expect(memoryOf('--meta', '2000')).toBeGreaterThan(4 * memoryOf());
});

test.each([
  [['--keys', 'many', '--verifiers', '1', '--rps', '1'], '--keys: a number from 1 up'],
  [['--keys', '1', '--verifiers', '0', '--rps', '1'], '--verifiers: a number from 1 up'],
  [['--keys', '1', '--verifiers', '1'], '--rps: a number from 0 up'],
  [['--keys', '1', '--verifiers', '1', '--rps', '1', '--meta', '-5'], '--meta'],
  [['--kyes', '1'], '--kyes'],
])('refuses %j by name', (args, reason) => {
  const { stderr, stdout, status } = run(...args);
  expect(stderr).toContain(reason);
  expect({ stdout, status }).toEqual({ stdout: '', status: 2 });
});
