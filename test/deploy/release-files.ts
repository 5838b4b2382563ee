import { execFileSync } from 'node:child_process';
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const ROOT = join(import.meta.dirname, '..', '..');
const PATH = `${dirname(process.execPath)}:${process.env['PATH']}`;
/** Makes a commit that is the same wherever and whenever it is made. */
export const COMMIT = {
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_AUTHOR_DATE: '2026-01-02T03:04:05Z',
  GIT_COMMITTER_DATE: '2026-01-02T03:04:05Z',
  GIT_AUTHOR_NAME: 'a',
  GIT_AUTHOR_EMAIL: 'a@example.com',
  GIT_COMMITTER_NAME: 'a',
  GIT_COMMITTER_EMAIL: 'a@example.com',
};

/** Makes a repository of the project as it stands, with one commit. */
export function checkout(folder: string): string {
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  for (const file of files.trim().split('\n'))
    cpSync(join(ROOT, file), join(folder, file), { recursive: true, verbatimSymlinks: true });
  const git = (...args: string[]) =>
    execFileSync('git', args, { cwd: folder, env: { ...process.env, ...COMMIT }, stdio: 'pipe' });
  git('init', '--quiet', '--initial-branch', 'main');
  git('add', '--all');
  git('commit', '--quiet', '--message', 'release');
  writeFileSync(join(folder, '.git/info/exclude'), 'node_modules\n');
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  return folder;
}

/** Builds a release of a checkout beside it, and returns where, with its checksums and its manifest. */
export function release(
  from: string,
  options: readonly string[],
  env: Readonly<Record<string, string>> = {},
) {
  const folder = `${from}-release`;
  const args = ['run', '--silent', 'build:release', '--', folder, ...options];
  execFileSync('npm', args, { cwd: from, env: { ...process.env, PATH, ...env }, stdio: 'pipe' });
  return released(folder);
}

/** A release that was built into a folder. */
export function released(folder: string) {
  const read = (name: string) => readFileSync(join(folder, name), 'utf8');
  return { folder, sums: read('SHA256SUMS'), manifest: JSON.parse(read('manifest.json')) };
}
