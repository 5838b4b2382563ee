import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadFromEnvironment } from '#shared/process/load-config.ts';
import { Client, callPatiently, RETRIES_FEW } from './client.ts';
import { Contexts } from './contexts.ts';
import { CliError, EXITS, type Exit } from './exit.ts';
import { type CliConfig, settings } from './settings.ts';
import { json, safe } from './terminal/output.ts';
import { canPrompt, promptSecret } from './terminal/prompt.ts';

/** The configuration, with the URL of the private Redis of a running `npm start`. */
type StartedConfig = CliConfig & {
  readonly redisUrl: string | undefined;
  /** False = nobody has said where the control plane is. */
  readonly isKnown: boolean;
};

/** The note that `npm start` keeps in its folder while it runs. */
interface RunningStart {
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
function readRunningStart(folder: string): RunningStart | undefined {
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

/** The contexts of this user. */
const contextsHere = () =>
  new Contexts(loadFromEnvironment({ XDG_CONFIG_HOME: settings.XDG_CONFIG_HOME }).XDG_CONFIG_HOME);

/** Reads the configuration. Its defaults are those of a running `npm start` of this machine, or else of the context that applies. */
function readConfig(): StartedConfig {
  const { KEYFENCE_DATA: data, KEYFENCE_URL: url, KEYFENCE_VERIFIER_URL: verifierUrl } = settings;
  const { KEYFENCE_DATA } = loadFromEnvironment({ KEYFENCE_DATA: data });
  const running: Partial<RunningStart> = readRunningStart(KEYFENCE_DATA) ?? {};
  const context = running.controlPlane === undefined ? contextsHere().current : undefined;
  const config = loadFromEnvironment({
    ...settings,
    KEYFENCE_URL: { ...url, default: running.controlPlane ?? context?.url ?? url.default },
    KEYFENCE_VERIFIER_URL: { ...verifierUrl, default: running.verifier ?? verifierUrl.default },
  });
  const isOwn = running.controlPlane !== undefined && config.KEYFENCE_URL.origin === running.controlPlane;
  const rootKeyFile = isOwn && running.rootKeyFile && existsSync(running.rootKeyFile);
  const KEYFENCE_ROOT_KEY =
    config.KEYFENCE_ROOT_KEY ||
    (rootKeyFile ? settings.KEYFENCE_ROOT_KEY.parse(readFileSync(running.rootKeyFile, 'utf8')) : '') ||
    (context?.url === config.KEYFENCE_URL.href ? context.rootKey : '');
  const { KEYFENCE_URL: urlText } = loadFromEnvironment({
    KEYFENCE_URL: { ...url, parse: String, default: '' },
  });
  const isKnown = urlText !== '' || running.controlPlane !== undefined || context !== undefined;
  return { ...config, KEYFENCE_ROOT_KEY, redisUrl: running.redisUrl, isKnown };
}

/** One run of the command line: the services it calls, its output, and its exit status. */
export class Session {
  /** True with `--json`: output is for scripts. */
  json = false;
  #config: StartedConfig | undefined;

  /** The configuration, read at first use, so that help needs no environment. */
  get config(): StartedConfig {
    this.#config ??= readConfig();
    return this.#config;
  }

  /** The control planes that this user signed in to. */
  get contexts(): Contexts {
    return contextsHere();
  }

  /** The root key in the environment; '' = none. */
  rootKeyIn(): string {
    return loadFromEnvironment({ KEYFENCE_ROOT_KEY: settings.KEYFENCE_ROOT_KEY }).KEYFENCE_ROOT_KEY;
  }

  /**
   * The control plane, called with the root key; prompts for the key on a terminal. Rejects with
   * NOT_PERMITTED.
   */
  async controlPlane(): Promise<Client> {
    const { KEYFENCE_URL: url, KEYFENCE_ROOT_KEY: configuredKey, isKnown } = this.config;
    if (!isKnown && !configuredKey)
      throw new CliError(
        'NOT_PERMITTED',
        'npm start is not running here, and no other address is known: run keyfence login <url>, or set KEYFENCE_URL and KEYFENCE_ROOT_KEY_FILE',
      );
    const rootKey = configuredKey || (canPrompt() ? await promptSecret(`Root key for ${url.origin}: `) : '');
    if (!rootKey) {
      throw new CliError('NOT_PERMITTED', 'no root key: set KEYFENCE_ROOT_KEY_FILE or KEYFENCE_ROOT_KEY');
    }
    if (!/^[!-~]+$/.test(rootKey)) throw new CliError('NOT_PERMITTED', 'that is not a root key');
    return new Client(url, 'control plane', rootKey);
  }

  /** Calls one operation of the control plane; see `Client.call`. */
  async call<T>(operation: string, input: object = {}): Promise<T> {
    return (await this.controlPlane()).call<T>(operation, input);
  }

  /**
   * Calls an operation that may be repeated, with retries for about as long as a person waits at a terminal.
   */
  callPatiently<T>(client: Client, operation: string, input: object): Promise<T> {
    const { signal } = new AbortController();
    return callPatiently<T>(client, operation, input, signal, (text) => this.note(text), RETRIES_FEW);
  }

  /** The verifier, called without a root key. */
  verifier(): Client {
    return new Client(this.config.KEYFENCE_VERIFIER_URL, 'verifier');
  }

  /**
   * Resolves with the verifier's verdict. Sends the root key only to a verifier that asks for one
   * (VERIFY_ROOT_KEYS).
   */
  async verdict<T>(question: object): Promise<T> {
    const { KEYFENCE_VERIFIER_URL: url, KEYFENCE_ROOT_KEY: rootKey } = this.config;
    const ask = (client: Client) => this.callPatiently<T>(client, 'keys.verifyKey', question);
    try {
      return await ask(this.verifier());
    } catch (error) {
      if (!(error instanceof CliError && error.code === 'UNAUTHORIZED' && rootKey)) throw error;
      return ask(new Client(url, 'verifier', rootKey));
    }
  }

  /** Prints a result on standard output: `value` as one line of JSON for scripts, `text` for people. */
  print(value: unknown, text: () => string): void {
    process.stdout.write(`${this.json ? json(value) : safe(text())}\n`);
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
