import { loadFromEnvironment } from '#shared/process/load-config.ts';
import { Client, callPatiently, RETRIES_FEW } from './client.ts';
import { CliError, EXITS, type Exit } from './exit.ts';
import { type CliConfig, settings } from './settings.ts';
import { lacking, readTarget, sourceOf, type Target } from './target.ts';
import { json, safe } from './terminal/output.ts';
import { canPrompt, promptSecret } from './terminal/prompt.ts';

/** One run of the command line: the services it calls, its output, and its exit status. */
export class Session {
  /** True with `--json`: output is for scripts. */
  json = false;
  #config: CliConfig | undefined;
  #target: Promise<Target | undefined> | undefined;
  /** The server that was asked for a change. */
  #changes: string | undefined;

  /** The configuration, read at first use, so that help needs no environment. */
  get config(): CliConfig {
    this.#config ??= loadFromEnvironment(settings);
    return this.#config;
  }

  /** The addresses and the root key of calls; undefined = nobody has named any. */
  get target(): Promise<Target | undefined> {
    this.#target ??= readTarget();
    return this.#target;
  }

  /** True once a change was sent. */
  get isChanging(): boolean {
    return this.#changes !== undefined;
  }

  /** Resolves with the address of the control plane. Rejects if none is known. */
  async url(): Promise<URL> {
    const target = await this.target;
    if (target?.url) return target.url;
    throw await lacking(target, 'KEYFENCE_URL');
  }

  /**
   * The control plane, called with the root key; prompts for the key on a terminal. Rejects with
   * NOT_PERMITTED.
   */
  async controlPlane(): Promise<Client> {
    const url = await this.url();
    const target = await this.target;
    const rootKey =
      target?.rootKey || (canPrompt() ? await promptSecret(`Root key for ${url.origin}: `) : '');
    if (!rootKey) throw await lacking(target, 'KEYFENCE_ROOT_KEY_FILE');
    if (!/^[!-~]+$/.test(rootKey)) throw new CliError('NOT_PERMITTED', 'that is not a root key');
    return new Client(url, 'control plane', rootKey, (place) => {
      if (this.#changes !== place) this.note(`At ${place}, from ${target && sourceOf(target)}:`);
      this.#changes = place;
    });
  }

  /** Calls one operation of the control plane; see `Client.call`. */
  async call<T>(operation: string, input: object = {}): Promise<T> {
    return (await this.controlPlane()).call<T>(operation, input);
  }

  /**
   * Calls an operation that may be repeated, with retries for about as long as a person waits at a terminal.
   */
  callPatiently<T>(client: Client, operation: string, input: object, idempotencyKey?: string): Promise<T> {
    const { signal } = new AbortController();
    const say = (text: string) => this.note(text);
    return callPatiently<T>(client, operation, input, signal, say, RETRIES_FEW, idempotencyKey);
  }

  /** Resolves with the address of the verifier. Rejects if none is known. */
  async verifierUrl(): Promise<URL> {
    const target = await this.target;
    if (target?.verifierUrl) return target.verifierUrl;
    throw await lacking(target, 'KEYFENCE_VERIFIER_URL');
  }

  /**
   * Resolves with the verifier's verdict. Sends the root key only to a verifier that asks for one
   * (VERIFY_ROOT_KEYS).
   */
  async verdict<T>(question: object): Promise<T> {
    const url = await this.verifierUrl();
    const rootKey = (await this.target)?.rootKey;
    const ask = (client: Client) => this.callPatiently<T>(client, 'keys.verifyKey', question);
    try {
      return await ask(new Client(url, 'verifier'));
    } catch (error) {
      if (!(error instanceof CliError && error.code === 'UNAUTHORIZED' && rootKey)) throw error;
      return ask(new Client(url, 'verifier', rootKey));
    }
  }

  /**
   * Prints a result on standard output: `value` as one line of JSON for scripts, `text` for people. After a change, an
   * object names its server, which people read before.
   */
  print(value: object, text: () => string): void {
    const hasServer = this.#changes !== undefined && !Array.isArray(value);
    const answer = hasServer ? { ...value, server: this.#changes } : value;
    process.stdout.write(`${this.json ? json(answer) : safe(text())}\n`);
  }

  /** Prints a remark on standard error, for people only. */
  note(text: string): void {
    if (!this.json) process.stderr.write(`${safe(text)}\n`);
  }

  /** Prints a fault on standard error: `value` as one line of JSON for scripts, `text` for people. */
  report(value: unknown, text: string): void {
    process.stderr.write(`${this.json ? json(value) : safe(text)}\n`);
  }

  /** Sets the exit status, which an error may still replace. */
  end(exit: Exit): void {
    process.exitCode = EXITS[exit][0];
  }
}
