import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

/**
 * The released 0.2.0: the sources of both processes at commit 00fd790c, without the pages and the sources of the dashboard,
 * and the lockfile of their dependencies.
 */
const ARCHIVE = join(import.meta.dirname, 'keyfence-0.2.0.tar.gz');
const SHA256 = 'c9b9736cd62e9b6fc9eb7caec68c0e9aebff023fc49026b1aa64a06b933ddd2f';

/** Unpacks it and installs its dependencies, once on each machine. Returns its folder. */
export function released(): string {
  const digest = createHash('sha256').update(readFileSync(ARCHIVE)).digest('hex');
  if (digest !== SHA256) throw new Error(`${ARCHIVE} is not the archive of 0.2.0: its SHA-256 is ${digest}`);
  // Node strips no types below node_modules.
  const cache = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  const folder = join(cache, 'keyfence-released', digest.slice(0, 12));
  if (existsSync(folder)) return folder;
  const unfinished = `${folder}.${process.pid}`;
  mkdirSync(unfinished, { recursive: true });
  execFileSync('tar', ['-xzf', ARCHIVE, '-C', unfinished]);
  execFileSync(
    'npm',
    ['ci', '--omit=dev', '--omit=optional', '--loglevel=error', '--no-fund', '--no-audit'],
    {
      cwd: unfinished,
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  );
  try {
    renameSync(unfinished, folder);
  } catch (error) {
    // Another run was first.
    if (!existsSync(folder)) throw error;
    rmSync(unfinished, { recursive: true });
  }
  return folder;
}
