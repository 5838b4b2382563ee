import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { afterAll } from 'vitest';
import { startedFrom } from '../../../harness/built.ts';
import { type Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { COMPILED } from '../../../harness/processes.ts';
import { skippedWithout } from '../../../harness/programs.ts';

const COMMAND = startedFrom('control-plane/clients/cli/main.ts');

/** Outcome of a run of the command line. */
export interface Run {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

type Env = Readonly<Record<string, string>>;

/** One run of the command line. */
export interface Order {
  readonly args: readonly string[];
  readonly env: Env;
  readonly input: string;
}

/** The environment in which the command line finds a fleet; nothing of ours but that. */
export function envOf(fleet: Fleet, more: Env = {}): Env {
  return {
    PATH: `${dirname(process.execPath)}:/usr/bin:/bin`,
    ...COMPILED,
    KEYFENCE_URL: fleet.controlPlanes[0]?.address ?? '',
    KEYFENCE_VERIFIER_URL: fleet.verifiers[0]?.address ?? '',
    KEYFENCE_ROOT_KEY: ROOT_KEY,
    REDIS_URL: fleet.redisUrl,
    ...more,
  };
}

/** Starts the real command as a process of its own, without a terminal. */
export function start(
  args: readonly string[],
  env: Env,
  input?: string,
): { child: ChildProcess; ended: Promise<Run> } {
  return follow(spawn(process.execPath, [COMMAND, ...args], { env: { ...env } }), input);
}

/** Why nothing starts on a terminal here; '' where it can. */
export const noTerminal = skippedWithout('script');

/** As `start`, on a terminal of its own, which hears `input` once it shows `prompt`. */
export function startOnTerminal(args: readonly string[], env: Env, prompt = '', input = ''): Promise<Run> {
  const words = [process.execPath, COMMAND, ...args].map((word) => `'${word}'`).join(' ');
  const command = `stty cols 80; ${words}`;
  const child = spawn('script', ['-qefc', command, '/dev/null'], { env: { TERM: 'xterm', ...env } });
  const { ended } = follow(child);
  let shown = '';
  const listen = (chunk: Buffer) => {
    shown += chunk.toString();
    if (prompt === '' || !shown.includes(prompt)) return;
    child.stdout.off('data', listen);
    child.stdin.write(input);
  };
  child.stdout.on('data', listen);
  return ended;
}

/**
 * Runs commands in one process that stays, one after the other: the same code, output and status, without the start of a
 * process each. For what a process does by itself (signals, pipes, terminals) there is `start`.
 */
class CommandLine {
  #host: ChildProcess | undefined;
  #latest: Promise<unknown> = Promise.resolve();

  run(args: readonly string[], env: Env, input = ''): Promise<Run> {
    const ended = this.#latest.then(() => this.#outcome({ args, env, input }));
    this.#latest = ended.catch(() => undefined);
    return ended;
  }

  async #outcome(order: Order): Promise<Run> {
    this.#host ??= fork(join(import.meta.dirname, 'host.ts'), {
      env: { ...COMPILED },
      silent: true,
      execArgv: [],
    });
    const host = this.#host;
    const gone = new AbortController();
    const leave = () => gone.abort();
    host.once('exit', leave).send(order);
    try {
      const [outcome] = await once(host, 'message', gone);
      return outcome;
    } finally {
      host.off('exit', leave);
    }
  }

  async stop(): Promise<void> {
    if (!this.#host) return;
    const exited = once(this.#host, 'exit');
    this.#host.disconnect();
    await exited;
  }
}

/** The command line for the tests of a file. */
export function useCommandLine(): Pick<CommandLine, 'run'> {
  const commandLine = new CommandLine();
  afterAll(() => commandLine.stop());
  return commandLine;
}

function follow(
  child: ReturnType<typeof spawn>,
  input?: string,
): { child: ChildProcess; ended: Promise<Run> } {
  let stdout = '';
  let stderr = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr?.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  if (input !== undefined) child.stdin?.end(input);
  const ended = new Promise<Run>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (status) => resolve({ status, stdout, stderr }));
  });
  return { child, ended };
}
