import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { Copy } from './copy.ts';
import type { Order, Outcome } from './host.ts';
import type { Mutant } from './plant.ts';

/** What became of a mutant. */
export type Fate =
  | { readonly kind: 'caught' | 'too slow'; readonly by: string }
  | { readonly kind: 'survived' }
  | { readonly kind: 'no tests' };

/** How long a test file takes without a mutant, or why it cannot be used; shared, so that each is run only once. */
export type Baselines = Map<string, Promise<number | { readonly fault: string }>>;

/** A mutant may make a test file this much slower before it counts as caught: it may wait where it did not. */
const SLOWER = 3;
const SLACK_MS = 40_000;
const BASELINE_MS_MAX = 300_000;

/** One copy of the project with one process that runs tests in it. */
export class Worker {
  readonly #copy: Copy;
  readonly #baselines: Baselines;
  #host: Promise<ChildProcess> | undefined;
  /** Files that the tests read while a mutant was in them, and have to read anew. */
  #changedBefore: readonly string[] = [];

  constructor(root: string, baselines: Baselines) {
    this.#copy = new Copy(root);
    this.#baselines = baselines;
  }

  /** Runs the tests in their order until one notices the mutant. Those that fail without it are left out. */
  async try(mutant: Mutant, tests: readonly string[]): Promise<Fate> {
    let used = 0;
    for (const test of tests) {
      const usualMs = await this.#usualMs(test);
      if (typeof usualMs === 'object') continue;
      used++;
      this.#copy.plant(mutant);
      const outcome = await this.#run(test, mutant.file, SLOWER * usualMs + SLACK_MS);
      this.#copy.mend(mutant);
      if (outcome === 'too slow') return { kind: 'too slow', by: test };
      if (outcome.failed !== undefined) return { kind: 'caught', by: `${test}: ${outcome.failed}` };
    }
    return { kind: used === 0 ? 'no tests' : 'survived' };
  }

  /** Gives the copy with the mutant in it to somebody. */
  with<T>(mutant: Mutant, use: (root: string) => T): T {
    this.#copy.plant(mutant);
    try {
      return use(this.#copy.root);
    } finally {
      this.#copy.mend(mutant);
    }
  }

  async stop(): Promise<void> {
    await this.#end();
    this.#copy.remove();
  }

  async #usualMs(test: string): Promise<number | { readonly fault: string }> {
    const known = this.#baselines.get(test);
    if (known !== undefined) return known;
    const measured = this.#measure(test);
    this.#baselines.set(test, measured);
    return measured;
  }

  async #measure(test: string): Promise<number | { readonly fault: string }> {
    for (let attempt = 1; ; attempt++) {
      const startedMs = performance.now();
      const outcome = await this.#run(test, undefined, BASELINE_MS_MAX);
      if (outcome !== 'too slow' && outcome.failed === undefined) return performance.now() - startedMs;
      const reason = outcome === 'too slow' ? 'takes too long' : `fails: ${outcome.failed}`;
      if (attempt === 2) return { fault: `${test} ${reason}, without any mutant` };
    }
  }

  /** @param changed the file that has a mutant now */
  async #run(test: string, changed: string | undefined, limitMs: number): Promise<Outcome | 'too slow'> {
    this.#host ??= start(this.#copy.root);
    const host = await this.#host;
    const now = changed === undefined ? [] : [join(this.#copy.root, changed)];
    const order: Order = { file: test, changed: [...new Set([...this.#changedBefore, ...now])] };
    this.#changedBefore = now;
    const outcome = await new Promise<Outcome | 'too slow'>((resolve) => {
      const done = (outcome: Outcome | 'too slow') => {
        clearTimeout(timer);
        host.removeAllListeners('message');
        host.removeAllListeners('exit');
        resolve(outcome);
      };
      const timer = setTimeout(done, limitMs, 'too slow');
      host.once('message', done);
      host.once('exit', (code) => done({ failed: `the process of the tests ended with ${code}` }));
      host.send(order);
    });
    if (outcome === 'too slow' || host.exitCode !== null) await this.#end();
    return outcome;
  }

  async #end(): Promise<void> {
    const host = await this.#host;
    this.#host = undefined;
    if (!host?.pid || host.exitCode !== null) return;
    const ended = new Promise((resolve) => host.once('exit', resolve));
    kill(host);
    await ended;
  }
}

/** Kills a process of tests with all that it started: a test that hangs does not end by being asked. */
function kill({ pid, exitCode, signalCode }: ChildProcess): void {
  if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, 'SIGKILL');
}

async function start(root: string): Promise<ChildProcess> {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST')));
  const host = fork(join(import.meta.dirname, 'host.ts'), {
    cwd: root,
    env,
    detached: true,
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  const killIt = () => kill(host);
  process.once('exit', killIt);
  host.once('close', () => process.off('exit', killIt));
  await new Promise<void>((resolve, reject) => {
    host.once('message', () => resolve());
    host.once('exit', (code) => reject(new Error(`the process of the tests ended with ${code}`)));
  });
  host.removeAllListeners('exit');
  return host;
}
