import { ConfigError } from './load-config.ts';

/** Thrown if a listener could not be opened. The message names the setting with the address. */
class CannotListen extends Error {
  /** True if another attempt may help: the address is in use, perhaps by a process that is about to end. */
  readonly inUse: boolean;

  constructor(setting: string, place: string, { code = '', message }: NodeJS.ErrnoException) {
    const inUse = `${code} ${message}`.includes('EADDRINUSE');
    const reason = inUse
      ? `is in use by another process: stop that process, or set ${setting} to another value`
      : `cannot be used (${code || message}): ${ADVICE[code] ?? `set ${setting} to another value`}`;
    super(`${setting}: ${place} ${reason}`);
    this.name = 'CannotListen';
    this.inUse = inUse;
  }
}

const ADVICE: Readonly<Record<string, string>> = {
  EACCES: 'this user may not listen there; on many systems only root may use ports below 1024',
  EADDRNOTAVAIL: 'this machine has no such address',
  ENOTFOUND: 'no host has this name',
  ENOTSUP: 'this system does not let processes share a port; unset REUSE_PORT',
};

/**
 * Resolves with the result of `open`. Rejects with CannotListen if that fails.
 * @param setting name of the setting with the address
 * @param place the address, as in that setting
 */
export async function listening<T>(setting: string, place: string, open: Promise<T>): Promise<T> {
  try {
    return await open;
  } catch (error) {
    throw new CannotListen(setting, place, error as NodeJS.ErrnoException);
  }
}

/** EX_CONFIG of sysexits.h: another start would not help. */
const EXIT_CONFIG = 78;

/**
 * Resolves with the result of `start`. If `start` cannot listen, or a file of the configuration is wrong, writes the reason to
 * standard error and ends the process.
 */
export async function startOrExit<T>(start: Promise<T>): Promise<T> {
  try {
    return await start;
  } catch (error) {
    if (error instanceof ConfigError) {
      process.stderr.write(`${error.message}\n`);
      process.exit(EXIT_CONFIG);
    }
    if (!(error instanceof CannotListen)) throw error;
    process.stderr.write(`cannot listen:\n  ${error.message}\n`);
    process.exit(error.inUse ? 1 : EXIT_CONFIG);
  }
}

/** Ends the process, because it could not use Redis before an operator changes something. */
export function exitUnfit(reason: string): never {
  process.stderr.write(`cannot use Redis:\n  ${reason}\n`);
  process.exit(EXIT_CONFIG);
}
