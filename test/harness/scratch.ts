import { accessSync, constants, mkdtempSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A file system in memory, as Linux has it. Containers may have next to nothing there. */
const MEMORY = '/dev/shm';
const FREE_BYTES_MIN = 512 * 1024 * 1024;

/**
 * Makes a directory for the data of a Redis: in memory where there is room, so that tests wait for no disk. Redis writes
 * and syncs as it does in production; no test takes a machine's power away.
 */
export function scratch(name: string): string {
  return mkdtempSync(join(hasMemory() ? MEMORY : tmpdir(), `keyfence-${name}-`));
}

function hasMemory(): boolean {
  try {
    accessSync(MEMORY, constants.W_OK);
    const { bavail, bsize } = statfsSync(MEMORY);
    return bavail * bsize >= FREE_BYTES_MIN;
  } catch {
    return false; // not there: another system
  }
}
