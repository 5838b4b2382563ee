import { loadConfigOrExit } from '#shared/config.ts';
import { Client } from './client.ts';
import { CliError, EXITS, type Exit } from './exit.ts';
import { json } from './output.ts';
import { askSecret, canAsk } from './prompt.ts';
import { type CliConfig, settings } from './settings.ts';

/** One run of the command line: whom it talks to, how it prints, and how it ends. */
export class Session {
  /** Whether answers are printed for scripts. */
  json = false;
  #config: CliConfig | undefined;

  /** Read when first asked for, so that help needs no environment. */
  get config(): CliConfig {
    this.#config ??= loadConfigOrExit(settings, () => []);
    return this.#config;
  }

  /** The control plane, called with the root key; asks for it on a terminal. Rejects with NOT_PERMITTED. */
  async controlPlane(): Promise<Client> {
    const { KEYFENCE_URL: url, KEYFENCE_ROOT_KEY: given } = this.config;
    const rootKey = given || (canAsk() ? await askSecret(`Root key for ${url.origin}: `) : '');
    if (!rootKey) {
      throw new CliError('NOT_PERMITTED', 'no root key: set KEYFENCE_ROOT_KEY_FILE or KEYFENCE_ROOT_KEY');
    }
    if (!/^[!-~]+$/.test(rootKey)) throw new CliError('NOT_PERMITTED', 'that is not a root key');
    return new Client(url, 'control plane', rootKey);
  }

  verifier(): Client {
    return new Client(this.config.KEYFENCE_VERIFIER_URL, 'verifier');
  }

  /** Prints an answer on standard output: for scripts `value` as one line of JSON, for people `text`. */
  print(value: unknown, text: () => string): void {
    process.stdout.write(`${this.json ? json(value) : text()}\n`);
  }

  /** Says something besides the answer, on standard error; not to scripts. */
  note(text: string): void {
    if (!this.json) process.stderr.write(`${text}\n`);
  }

  /** The status with which the run will end, unless an error comes. */
  end(exit: Exit): void {
    process.exitCode = EXITS[exit][0];
  }
}
