import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The note that `npm start` keeps in its folder while it runs. */
export interface RunningStart {
  readonly controlPlane: string;
  readonly verifier: string;
  /** URL of its private Redis, if it has one. */
  readonly redisUrl?: string;
  /** File with the root key that `npm start` made, if readable. */
  readonly rootKeyFile: string;
}

/** The folder in which `npm start` keeps its data unless KEYFENCE_DATA names another. */
const FOLDER = join(import.meta.dirname, '..', '..', '.keyfence');

/** Returns the running `npm start` of this machine, as its folder describes it; undefined = none is known. */
export function readRunningStart(folder: string): RunningStart | undefined {
  const directory = folder || FOLDER;
  try {
    const note = JSON.parse(readFileSync(join(directory, 'running.json'), 'utf8')) as Omit<
      RunningStart,
      'rootKeyFile'
    >;
    return { ...note, rootKeyFile: join(directory, 'root-key') };
  } catch {
    return undefined; // it does not run, or not with this folder
  }
}
