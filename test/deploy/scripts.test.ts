import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { HOLDS_MS_MAX } from '../harness/waiting.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>;
};
/** The two processes take settings from the environment, and have their own tests. */
const SETTINGS_ONLY = /main\.ts$/;
const files = Object.values(scripts)
  .flatMap((command) => /(?:^|exec |&& )node (\S+\.ts)/.exec(command)?.[1] ?? [])
  .filter((file) => !SETTINGS_ONLY.test(file));
const run = (file: string, argument: string) =>
  spawnSync(process.execPath, [join(ROOT, file), argument], {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: HOLDS_MS_MAX,
  });

describe.each([...new Set(files)])('%s', (file) => {
  test('says with --help how it is used', () => {
    const { status, stdout, stderr } = run(file, '--help');
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toMatch(/npm (run|start)|node /);
  });

  test('answers an unknown option with its usage', () => {
    const { status, stderr } = run(file, '--bogus');
    expect(status).toBe(2);
    expect(stderr).toMatch(/--bogus/);
    expect(stderr).not.toMatch(/\n {4}at /);
  });
});
