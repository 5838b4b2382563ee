import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { numberArgument, scriptArguments, wrongArguments } from '../../../deploy/dev/arguments.ts';
import { ACCEPTED } from './accepted.ts';
import { filesOf } from './copy.ts';
import { mutate, type Tried } from './mutate.ts';
import { testsOf } from './tests-of.ts';

const USAGE = `npm run mutants -- [FILE[:LINE[-LINE]]|FOLDER ...] [--seed N] [--count N] [--jobs N] [--changed]

Plants plausible mistakes in the code, one at a time in a copy of the project, and runs the tests that should notice
them. Prints what survived and a table by file. A mistake that only makes tests hang counts as missed. Status 1 where something survives that test/proof/mutants/accepted.ts does
not give a reason for, 2 where a test fails without any mistake and was left out, or was killed from outside, so that
nothing is decided.

  FILE|FOLDER   what to plant them in, a file's lines where they are given (default: control-plane, verifier and
                shared, without the dashboard)
  --seed N      which of all that could be planted; a run without it tells its seed
  --count N     how many (default 50)
  --jobs N      how many at the same time (default: half of the processors)
  --changed     only in lines that differ from the branch main`;

const ROOT = join(import.meta.dirname, '..', '..', '..');

const { values, positionals } = scriptArguments(USAGE, {
  allowPositionals: true,
  options: {
    seed: { type: 'string' },
    count: { type: 'string', default: '50' },
    jobs: { type: 'string', default: String(Math.ceil(availableParallelism() / 2)) },
    changed: { type: 'boolean', default: false },
  },
});
const seed =
  values.seed === undefined ? Math.floor(Math.random() * 1e9) : numberArgument('seed', values.seed, 0, USAGE);
const count = numberArgument('count', values.count, 1, USAGE);
const jobs = numberArgument('jobs', values.jobs, 1, USAGE);

const files = new Map(sources(positionals));
// Ends by `exit`, which takes the copies and the processes of the tests away.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
console.log(`seed ${seed}`);
const startedMs = performance.now();
const options = { root: ROOT, files, testsOf, accepted: ACCEPTED, seed, count, jobs, tried: tell };
const { tried: results, faults } = await mutate(options);
report(results);
for (const fault of faults) console.error(`left out: ${fault}`);
if (faults.length > 0 || results.some(({ fate }) => fate.kind === 'not decided')) process.exitCode = 2;

type Source = readonly [file: string, lines: 'all' | ReadonlySet<number>];

/** The files that are meant, and which of their lines, of those that mistakes can be planted in. */
function sources(given: readonly string[]): Source[] {
  const wanted = given.length > 0 ? given : ['control-plane', 'verifier', 'shared'];
  const all = filesOf(ROOT).filter((file) =>
    /^(?:control-plane|verifier|shared)\/(?!clients\/dashboard\/).*(?<!\.d)\.(?:ts|lua)$/.test(file),
  );
  return wanted.flatMap((text) => {
    const [, name = text, first, last = first] = /^(.+):(\d+)(?:-(\d+))?$/.exec(text) ?? [];
    const path = relative(ROOT, resolve(name));
    const meant = all.filter((file) => file === path || file.startsWith(`${path}/`));
    if (meant.length === 0)
      wrongArguments(`${name}: ${existsSync(name) ? 'no code of the project' : 'not found'}`, USAGE);
    const lines = first === undefined ? undefined : range(Number(first), Number(last));
    return meant.map((file): Source => [file, lines ?? (values.changed ? changedLines(file) : 'all')]);
  });
}

function range(first: number, last: number): ReadonlySet<number> {
  return new Set(Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i));
}

function changedLines(file: string): ReadonlySet<number> {
  const git = (...args: string[]) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  const base = git('merge-base', 'main', 'HEAD').trim();
  const lines = new Set<number>();
  for (const [, first, length] of git('diff', '-U0', base, '--', file).matchAll(
    /^@@ -\S+ \+(\d+)(?:,(\d+))? @@/gm,
  ))
    for (const line of range(Number(first), Number(first) + Number(length ?? 1) - 1)) lines.add(line);
  return lines;
}

function tell({ mutant, before, after, fate }: Tried): void {
  const by = 'by' in fate ? ` by ${fate.by}` : 'reason' in fate ? `: ${fate.reason}` : '';
  console.log(`${mutant.file}:${mutant.line} ${fate.kind}${by}`);
  if (isMissed(fate)) console.log(`  - ${before}\n  + ${after}`);
}

/** Tells whether no assertion noticed a mistake. */
function isMissed({ kind }: Tried['fate']): boolean {
  return kind === 'survived' || kind === 'no tests' || kind === 'too slow';
}

function report(results: readonly Tried[]): void {
  const names = [...new Set(results.map(({ mutant }) => mutant.file))].sort();
  const row = (name: string, tried: readonly Tried[]) => {
    const alive = tried.filter(({ fate }) => isMissed(fate)).length;
    const accepted = tried.filter(({ fate }) => fate.kind === 'accepted').length;
    const open = tried.filter(({ fate }) => fate.kind === 'not decided').length;
    const decided = tried.length - accepted - open;
    const score = decided === 0 ? '' : `${Math.round(100 * (1 - alive / decided))} %`;
    return (
      name.padEnd(44) +
      [tried.length, decided - alive, accepted, open, alive, score]
        .map((cell) => String(cell).padStart(12))
        .join('')
    );
  };
  console.log(
    `\n${'file'.padEnd(44)}${['planted', 'caught', 'accepted', 'not decided', 'missed', 'score'].map((name) => name.padStart(12)).join('')}`,
  );
  for (const name of names)
    console.log(
      row(
        name,
        results.filter(({ mutant }) => mutant.file === name),
      ),
    );
  console.log(row('all', results));
  console.log(`seed ${seed}, ${Math.round((performance.now() - startedMs) / 1000)} s`);
  if (results.some(({ fate }) => isMissed(fate))) process.exitCode = 1;
}
