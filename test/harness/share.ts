import { spawnSync } from 'node:child_process';

const DAY_MS = 86_400_000;

/**
 * Chooses which part of a long search a run of the tests takes: a whole number that is the same for the same commit and
 * another for the next, or that of the day where there is no Git.
 */
export const turn: number = (() => {
  const { status, stdout } = spawnSync('git', ['rev-parse', 'HEAD'], {
    cwd: import.meta.dirname,
    encoding: 'utf8',
  });
  return status === 0 ? Number.parseInt(stdout.slice(0, 8), 16) : Math.floor(Date.now() / DAY_MS);
})();

/**
 * The part of a long search that this run takes: every `of`-th, other ones at the next commit. All of them where the
 * environment has SHARES=all.
 */
export function share<T>(all: readonly T[], of: number, at: number = turn): T[] {
  if (process.env['SHARES'] === 'all') return [...all];
  return all.filter((_, i) => i % of === at % of);
}
