import { join } from 'node:path';
import { Copy } from './copy.ts';
import type { Mutant } from './plant.ts';
import { type Ran, TestProcess } from './test-process.ts';

/** Outcome of a mutant. `too slow`: tests hang with it, and no assertion failed before the second that did. */
export type Fate =
  | { readonly kind: 'caught' | 'too slow'; readonly by: string }
  | { readonly kind: 'survived' }
  | { readonly kind: 'not decided'; readonly reason: string }
  | { readonly kind: 'no tests' };

/** Time that a test file takes without a mutant, or the reason why it cannot be used. Shared, so that each is run only once. */
export type Baselines = Map<string, Promise<number | { readonly fault: string }>>;

/** A mutant may make a test file this much slower before the next one is tried: it may wait where it did not. */
const SLOWER = 3;
const SLACK_MS = 40_000;
const BASELINE_MS_MAX = 300_000;

/** One copy of the project with one process that runs tests in it. */
export class Worker {
  readonly #copy: Copy;
  readonly #baselines: Baselines;
  #process: TestProcess | undefined;
  /** Files that the tests read while a mutant was in them, and have to read anew. */
  #changedBefore: readonly string[] = [];

  constructor(root: string, baselines: Baselines) {
    this.#copy = new Copy(root);
    this.#baselines = baselines;
  }

  /** Runs the tests in their order until an assertion notices the mutant. Tests that fail without it are left out. */
  async try(mutant: Mutant, tests: readonly string[]): Promise<Fate> {
    let used = 0;
    let slow: string | undefined;
    for (const test of tests) {
      const usualMs = await this.#usualMs(test);
      if (typeof usualMs === 'object') continue;
      used++;
      const outcome = await this.#runWith(mutant, test, SLOWER * usualMs + SLACK_MS);
      if (outcome === 'too slow') {
        if (slow !== undefined) break;
        slow = test;
        continue;
      }
      if (outcome.killed) return { kind: 'not decided', reason: `${test} was killed (${outcome.killed})` };
      if (outcome.failed !== undefined) return { kind: 'caught', by: `${test}: ${outcome.failed}` };
    }
    if (slow !== undefined) return { kind: 'too slow', by: slow };
    return { kind: used === 0 ? 'no tests' : 'survived' };
  }

  /** Runs a test file with the mutant, and once more where somebody else killed it: that says nothing of the mutant. */
  async #runWith(mutant: Mutant, test: string, limitMs: number): Promise<Ran> {
    this.#copy.plant(mutant);
    try {
      const ran = await this.#run(test, mutant.file, limitMs);
      return ran !== 'too slow' && ran.killed ? await this.#run(test, mutant.file, limitMs) : ran;
    } finally {
      this.#copy.mend(mutant);
    }
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
    await this.#process?.stop();
    this.#process = undefined;
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
      if (outcome !== 'too slow' && !outcome.killed && outcome.failed === undefined)
        return performance.now() - startedMs;
      const reason =
        outcome === 'too slow'
          ? 'takes too long'
          : outcome.killed
            ? `was killed (${outcome.killed})`
            : `fails: ${outcome.failed}`;
      if (attempt === 2) return { fault: `${test} ${reason}, without any mutant` };
    }
  }

  /** @param changed the file that has a mutant now */
  async #run(test: string, changed: string | undefined, limitMs: number): Promise<Ran> {
    this.#process ??= await TestProcess.start(this.#copy.root);
    const now = changed === undefined ? [] : [join(this.#copy.root, changed)];
    const order = { file: test, changed: [...new Set([...this.#changedBefore, ...now])] };
    this.#changedBefore = now;
    const ran = await this.#process.run(order, limitMs);
    if (ran === 'too slow' || this.#process.hasEnded) {
      await this.#process.stop();
      this.#process = undefined;
    }
    return ran;
  }
}
