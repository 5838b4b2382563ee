import { spawnSync } from 'node:child_process';
import { delimiter } from 'node:path';
import { lacking } from './programs.ts';

/**
 * The environment of somebody who cloned the project and types what the documentation says: the machine's own Node,
 * whatever Node runs the tests, and no variable of npm's or of the test runner's.
 */
export function bareEnv(more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const foreign = /^(npm_|VITEST|NODE(?!_COMPILE_CACHE)|INIT_CWD|TEST$|DEV$|PROD$|MODE$|SSR$|BASE_URL$)/;
  const kept = Object.entries(process.env).filter(([name]) => !foreign.test(name));
  const path = (process.env['PATH'] ?? '')
    .split(delimiter)
    .filter((folder) => !folder.includes('node_modules'));
  return { ...Object.fromEntries(kept), PATH: path.join(delimiter), ...more };
}

/** The shells of this machine into which somebody may copy a command, with what makes them end at the first failure. */
export const SHELLS = (
  [
    ['sh', '-ec'],
    ['bash', '-ec'],
    ['zsh', '-f', '-ec'],
  ] as const
).map(([name, ...options]) => {
  const missing = spawnSync('sh', ['-c', `command -v ${name}`], { env: bareEnv() }).status !== 0;
  return { name, options, missing, skipped: lacking(missing ? [name] : []) };
});
