import { type ChildProcess, spawn } from 'node:child_process';
import { dirname } from 'node:path';
import { startedFrom } from '../harness/built.ts';
import { type Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { COMPILED } from '../harness/processes.ts';

const COMMAND = startedFrom('control-plane/cli/main.ts');

/** Outcome of a run of the command line. */
export interface Run {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

type Env = Readonly<Record<string, string>>;

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

/** As `start`, on a terminal of its own, which hears `input` once it shows `prompt`. */
export function startOnTerminal(args: readonly string[], env: Env, prompt = '', input = ''): Promise<Run> {
  const command = [process.execPath, COMMAND, ...args].map((word) => `'${word}'`).join(' ');
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
