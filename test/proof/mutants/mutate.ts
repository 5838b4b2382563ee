import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Random } from '../simulation/random.ts';
import type { Accepted } from './accepted.ts';
import { filesOf } from './copy.ts';
import { type Mutant, mutantsOf, shown } from './plant.ts';
import { type Baselines, type Fate, Worker } from './worker.ts';

/** A mutant with what became of it. */
export interface Tried {
  readonly mutant: Mutant;
  readonly before: string;
  readonly after: string;
  readonly fate:
    | Fate
    | { readonly kind: 'refused by types' }
    | { readonly kind: 'accepted'; readonly reason: string };
}

/** Options of a mutation run. */
export interface Options {
  readonly root: string;
  /** Files; all of their lines, or only these of each. */
  readonly files: ReadonlyMap<string, 'all' | ReadonlySet<number>>;
  readonly testsOf: (root: string, file: string, files: readonly string[]) => readonly string[];
  readonly accepted: readonly Accepted[];
  readonly seed: number;
  readonly count: number;
  /** Mutants tried at the same time. */
  readonly jobs: number;
  /** Told of each mutant when its fate is known. */
  readonly tried: (one: Tried) => void;
}

/** Plants `count` mutants, chosen by the seed, one at a time in each of `jobs` copies of the project. `faults`: tests that were left out. */
export async function mutate(options: Options): Promise<{ tried: Tried[]; faults: string[] }> {
  const { root, testsOf, accepted, tried } = options;
  const files = filesOf(root);
  const queue = chosen(options);
  const baselines: Baselines = new Map();
  const results: Tried[] = [];
  const work = async () => {
    const worker = new Worker(root, baselines);
    try {
      for (let next = queue.pop(); next; next = queue.pop()) {
        const { mutant, before, after } = next;
        const { file } = mutant;
        const known = accepted.find(
          (one) => one.file === file && one.before === before && one.after === after,
        );
        const fate: Tried['fate'] = known
          ? { kind: 'accepted', reason: known.reason }
          : await worker.try(mutant, testsOf(root, file, files));
        const survived = fate.kind === 'survived' || fate.kind === 'no tests';
        const refused = survived && refusedByTypes(worker, mutant);
        const one: Tried = { mutant, before, after, fate: refused ? { kind: 'refused by types' } : fate };
        results.push(one);
        tried(one);
      }
    } finally {
      await worker.stop();
    }
  };
  await Promise.all(Array.from({ length: Math.min(options.jobs, queue.length) }, work));
  const measured = await Promise.all(baselines.values());
  const faults = measured.flatMap((result) => (typeof result === 'object' ? [result.fault] : []));
  return { tried: results, faults };
}

/** The same seed chooses the same mutants of the same files. */
function chosen({ root, files, seed, count }: Options): Omit<Tried, 'fate'>[] {
  const all = [...files].flatMap(([file, lines]) => {
    const text = readFileSync(join(root, file), 'utf8');
    return mutantsOf(file, text)
      .filter(({ line }) => lines === 'all' || lines.has(line))
      .map((mutant) => ({ mutant, ...shown(text, mutant) }));
  });
  const random = new Random(seed);
  const picked: Omit<Tried, 'fate'>[] = [];
  while (picked.length < count && all.length > 0)
    picked.push(...all.splice(random.whole(0, all.length - 1), 1));
  // Those of one file one after another, from the end of the list, which is taken from.
  return picked.sort(({ mutant: a }, { mutant: b }) =>
    a.file === b.file ? b.start - a.start : a.file < b.file ? 1 : -1,
  );
}

/** Tells whether `npm run types` would not let a mutant through. */
function refusedByTypes(worker: Worker, mutant: Mutant): boolean {
  if (!mutant.file.endsWith('.ts')) return false;
  return worker.with(mutant, (root) => {
    try {
      execFileSync('node_modules/.bin/tsc', ['--noEmit'], { cwd: root, stdio: 'ignore' });
      return false;
    } catch {
      return true; // tsc ends with a status of its own where a type is wrong
    }
  });
}
