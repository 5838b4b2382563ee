import { join } from 'node:path';

/**
 * Sources of what tests start as processes. Each becomes one file for a run of the tests (`test/harness/build.ts`): a start
 * takes half the processor time, and less. `listening`, `config` and `start` start the sources, `image` and `package` what
 * is released.
 */
export const MAINS = [
  'control-plane/main.ts',
  'verifier/main.ts',
  'control-plane/clients/cli/main.ts',
] as const;
export type Main = (typeof MAINS)[number];

/** The code of this release. */
export const ROOT = join(import.meta.dirname, '..', '..');
/** Variable with the folder of what was built; empty where everything is to start from its source. */
export const BUILT = 'KEYFENCE_TEST_BUILT';
/** Variables by which another process of tests, and those that it starts, start everything from its source. */
export const FROM_SOURCES: Readonly<Record<string, string>> = { [BUILT]: '' };

/** Where a process starts: the one file where this run of the tests built it from these sources, else its source. */
export function startedFrom(main: Main): string {
  const folder = process.env[BUILT];
  // A copy of the project, as of a planted mistake, has none of its own and must not start another's.
  return folder?.startsWith(`${ROOT}/`) ? join(folder, outputOf(main)) : join(ROOT, main);
}

/** Name of the one file. */
export const outputOf = (main: Main) => main.replaceAll('/', '-').replace(/ts$/, 'js');
