import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The note that `npm start` leaves in its folder while it runs. */
export interface RunningStart {
  readonly controlPlane: string;
  readonly verifier: string;
  /** Of its private Redis, where it has one. */
  readonly redisUrl?: string;
  /** The one that it made, where that can be read. */
  readonly rootKeyFile: string;
}

/** The folder in which `npm start` keeps its data unless KEYFENCE_DATA says otherwise. */
const FOLDER = join(import.meta.dirname, '..', '..', '.keyfence');

/** The running `npm start` of this machine, as its folder tells; undefined = none is known. */
export function readRunningStart(folder: string): RunningStart | undefined {
  const directory = folder || FOLDER;
  try {
    const note = JSON.parse(readFileSync(join(directory, 'running.json'), 'utf8')) as Omit<
      RunningStart,
      'rootKeyFile'
    >;
    return { ...note, rootKeyFile: join(directory, 'root-key') };
  } catch {
    return undefined; // it does not run, or this is no place where it would
  }
}
