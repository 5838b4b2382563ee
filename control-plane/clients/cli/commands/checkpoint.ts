import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { getSystemErrorMessage } from 'node:util';
import { CliError } from '../exit.ts';

/** Progress of a long run, in a file beside its input or output, from which the next run continues. */
export class Checkpoint<State extends object> {
  readonly file: string;
  readonly #of: string;

  /** @param of identifies the run; the state of another run is ignored */
  constructor(file: string, of: readonly string[]) {
    this.file = file;
    this.#of = of.join(' ');
  }

  /** Returns undefined if there is no state, or it belongs to another run. */
  read(): State | undefined {
    let text: string;
    try {
      text = readFileSync(this.file, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw fileError(this.file, error);
    }
    try {
      const { of, ...state } = JSON.parse(text);
      return of === this.#of ? state : undefined;
    } catch {
      throw new CliError(
        'USAGE',
        `${this.file} is in the way: it does not belong to an interrupted run; move it away`,
      );
    }
  }

  write(state: State): void {
    try {
      writeFileSync(`${this.file}.new`, JSON.stringify({ of: this.#of, ...state }), { mode: 0o600 });
      renameSync(`${this.file}.new`, this.file);
    } catch (error) {
      throw fileError(this.file, error);
    }
  }

  remove(): void {
    rmSync(this.file, { force: true });
  }
}

/** Returns the error for a file that cannot be used. */
export function fileError(file: string, error: unknown): CliError {
  const { errno } = error as NodeJS.ErrnoException;
  const reason = errno === undefined ? 'unknown error' : getSystemErrorMessage(errno);
  return new CliError('USAGE', `cannot read or write ${file}: ${reason}`, { cause: error });
}

/** Returns a signal that aborts on the first Ctrl-C; the second Ctrl-C ends the process immediately. */
export function stopOnInterrupt(): AbortSignal {
  const stop = new AbortController();
  process.once('SIGINT', () => stop.abort());
  return stop.signal;
}
