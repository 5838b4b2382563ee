import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { CliError } from './exit.ts';

/** A control plane that was signed in to. */
export interface Context {
  readonly url: string;
  readonly rootKey: string;
  readonly verifierUrl?: string | undefined;
}

interface Stored {
  /** Name of the context that applies; undefined = none. */
  readonly current?: string | undefined;
  readonly contexts: Readonly<Record<string, Context>>;
}

/** The contexts of this user, in a file that only this user may read. */
export class Contexts {
  readonly #file: string;

  /** @param folder '' = `.config` in the user's home */
  constructor(folder: string) {
    this.#file = join(folder || join(homedir(), '.config'), 'keyfence', 'contexts.json');
  }

  read(): Stored {
    let text: string;
    try {
      text = readFileSync(this.#file, 'utf8');
    } catch {
      return { contexts: {} };
    }
    try {
      return JSON.parse(text) as Stored;
    } catch {
      throw new CliError('CONFIG', `${this.#file} is damaged: move it away, and run keyfence login again`);
    }
  }

  write(stored: Stored): void {
    mkdirSync(dirname(this.#file), { recursive: true, mode: 0o700 });
    writeFileSync(`${this.#file}.new`, `${JSON.stringify(stored, null, 2)}\n`, { mode: 0o600 });
    renameSync(`${this.#file}.new`, this.#file);
  }
}
