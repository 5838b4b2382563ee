import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { cpus, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { percentile } from './revocation/outcome.ts';

export { percentile };

/** One number, and its target if it has one. */
export interface Row {
  readonly name: string;
  readonly value: string;
  /** The target in words, such as `≥ 2.0`. */
  readonly target?: string;
  readonly met?: boolean;
}

/** Results of one file of this folder. */
export interface Section {
  readonly title: string;
  /** Describes what is measured, under what load, and the pinning. */
  readonly about: string;
  readonly rows: readonly Row[];
  /** Values that are drawn as a chart. */
  readonly panels?: readonly Panel[];
}

/** A group of bars; the first is ours. */
export interface Panel {
  readonly unit: string;
  /** Digits after the decimal point. */
  readonly digits: number;
  readonly values: readonly { readonly name: string; readonly value: number }[];
}

/** One benchmark. `quick` asks for the shortest run that is still meaningful. */
export type Benchmark = (options: { quick: boolean }) => Promise<Section>;

/** The median; of an even number of values, the higher of the middle two. */
export function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}

/** Runs `work` in a temporary directory, which is removed afterwards. */
export async function inDirectory<T>(work: (directory: string) => Promise<T>): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'keyfence-bench-'));
  try {
    return await work(directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Describes the machine on which the numbers were measured. */
export function machine(): string {
  const [cpu] = cpus();
  const version = (command: string, ...args: string[]) =>
    spawnSync(command, args, { encoding: 'utf8' }).stdout?.trim().split('\n')[0] ?? 'none';
  const kernel = execFileSync('uname', ['-sr'], { encoding: 'utf8' }).trim();
  const clean = spawnSync('git', ['diff', '--quiet', 'HEAD', '--', '.', ':!bench/results.*']).status === 0;
  return [
    `commit ${version('git', 'rev-parse', '--short', 'HEAD')}${clean ? '' : ' and uncommitted changes'}`,
    new Date().toISOString().slice(0, 10),
    `${cpus().length} × ${cpu?.model.trim() ?? 'unknown processor'}`,
    `${Math.round(totalmem() / 2 ** 30)} GiB`,
    kernel,
    `Node.js ${process.version}`,
    version('redis-server', '--version').replace(/ sha=.*/, ''),
  ].join(', ');
}

const canPin = process.platform === 'linux' && spawnSync('taskset', ['--version']).status === 0;

/** Pins a command to one core, if the system can. */
export function pinned(core: number, command: readonly string[]): string[] {
  return canPin ? ['taskset', '-c', String(core), ...command] : [...command];
}

/** Pins a running process with all its threads to one core, if the system can. */
export function pin(pid: number | undefined, core: number): void {
  if (canPin) execFileSync('taskset', ['-acp', String(core), String(pid)], { stdio: 'ignore' });
}

/** A process of a benchmark, which prints a line of JSON when it is ready. */
export interface Running<T> {
  readonly pid: number;
  readonly ready: T;
  /** Calls `listener` for every later line of JSON. */
  onLine(listener: (line: unknown) => void): void;
  stop(): Promise<void>;
}

/** Starts a process and waits for its first line of JSON that has the field `until`. */
export function startProcess<T>(
  command: readonly string[],
  env: NodeJS.ProcessEnv,
  until: string,
): Promise<Running<T>> {
  const [file = '', ...args] = command;
  const child = spawn(file, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const stop = async () => {
    child.kill('SIGKILL');
    await exited;
  };
  return new Promise((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`${command.join(' ')} ended with ${code}`)));
    let rest = '';
    let listener: (line: unknown) => void = () => undefined;
    const onLine = (wanted: typeof listener) => {
      listener = wanted;
    };
    child.stdout.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        if (!line.startsWith('{')) continue;
        const ready = JSON.parse(line) as T & object;
        if (until in ready) resolve({ pid: child.pid ?? 0, ready, onLine, stop });
        else listener(ready);
      }
    });
  });
}
