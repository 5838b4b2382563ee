// `npm run model`: runs Spin over the models. README.md says what the rows mean.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { scriptArguments } from '../../../deploy/dev/arguments.ts';
import { COUNTEREXAMPLES, type Search, searches } from './searches.ts';

const MEMORY_MIB_MAX = 6000;
const SEARCH_MS_MAX = 300_000;
const DEPTH_MAX = 1_000_000;
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;
const modelOf = ({ model }: Search): string => join(import.meta.dirname, `${model}.pml`);

const USAGE = `npm run model -- [--quick] [--trail NAME] [--list]

Searches every state of the protocol's model with Spin, with and without each precaution. Status 1 where one surprises.

  --quick       the short searches only
  --trail NAME  prints the counterexample of one mutant step by step
  --list        prints the mutants, and what goes wrong in the counterexample of each`;

export interface Outcome {
  found: 'ok' | 'error' | 'not completed';
  states: number;
  depth: number;
  seconds: number;
  violated: string;
}

/** The tools this needs and does not find on PATH. */
export function missingTools(): ('spin' | 'gcc')[] {
  return (['spin', 'gcc'] as const).filter((tool) => spawnSync(tool, ['--version']).error !== undefined);
}

export function search(each: Search, { depthMax = DEPTH_MAX } = {}): Outcome {
  return inTemporaryDirectory((directory) => {
    build(directory, each);
    return runPan(directory, depthMax);
  });
}

function verdict({ expect }: Search, { found }: Outcome): string {
  if (found === expect) return expect === 'ok' ? 'holds' : 'found';
  if (found === 'not completed') return 'SEARCH NOT COMPLETED';
  return found === 'error' ? 'ERROR IN THE PROTOCOL' : 'MUTANT NOT FOUND';
}

function main(): number {
  const { values } = scriptArguments(USAGE, {
    options: { quick: { type: 'boolean' }, trail: { type: 'string' }, list: { type: 'boolean' } },
  });
  if (values.list) {
    for (const [rules, what] of COUNTEREXAMPLES) console.log(`${rules}: ${what}`);
    return 0;
  }
  if (missingTools().length > 0) {
    console.error('The model needs Spin and a C compiler: apt-get install spin gcc');
    return 2;
  }
  return values.trail === undefined ? runTable(values.quick === true) : printTrail(values.trail);
}

function runTable(quick: boolean): number {
  let failures = 0;
  console.log(row('search', 'states', 'depth', 'seconds', 'verdict'));
  for (const each of searches.filter((candidate) => candidate.quick || !quick)) {
    const outcome = search(each);
    if (outcome.found !== each.expect) failures += 1;
    const { states, depth, seconds } = outcome;
    console.log(
      row(each.name, states.toLocaleString('en'), depth, seconds.toFixed(1), verdict(each, outcome)),
    );
    if (outcome.found === 'error' && each.expect === 'ok') console.log(`  ${outcome.violated}`);
  }
  console.log(failures === 0 ? 'As expected.' : `${failures} not as expected.`);
  return failures === 0 ? 0 : 1;
}

function printTrail(name: string): number {
  const wanted = searches.find((candidate) => candidate.name === name);
  if (wanted === undefined) {
    console.error(`No search named "${name}". There are: ${searches.map((each) => each.name).join(', ')}`);
    return 2;
  }
  return inTemporaryDirectory((directory) => {
    build(directory, wanted);
    const { found, violated } = runPan(directory, DEPTH_MAX);
    if (found !== 'error') {
      console.log(`${name}: no counterexample (${found})`);
      return 1;
    }
    const replay = ['-t', '-p', '-g', '-k', `${wanted.model}.pml.trail`, ...wanted.defines, modelOf(wanted)];
    console.log(run(directory, 'spin', replay).stdout);
    console.log(`${name}: ${violated}`);
    return 0;
  });
}

function build(directory: string, each: Search): void {
  const { defines, breadthFirst, quick } = each;
  // A short search ends before a compiler that optimises does.
  const optimisation = !quick ? '-O2' : breadthFirst ? '-O0' : '-O1';
  mustRun(directory, 'spin', ['-a', ...defines, modelOf(each)]);
  const options = [
    optimisation,
    '-w',
    '-DSAFETY',
    '-DCOLLAPSE',
    '-DVECTORSZ=2048',
    `-DMEMLIM=${MEMORY_MIB_MAX}`,
  ];
  if (breadthFirst) options.push('-DBFS');
  mustRun(directory, 'gcc', [...options, '-o', 'pan', 'pan.c']);
}

function runPan(directory: string, depthMax: number): Outcome {
  const started = performance.now();
  const { stdout } = run(directory, './pan', ['-E', '-n', `-m${depthMax}`, '-w22']);
  const seconds = (performance.now() - started) / 1000;
  const number = (pattern: RegExp) => Number(pattern.exec(stdout)?.[1] ?? 0);
  const states = number(/(\d+) states, stored/);
  const depth = number(/\(at depth (\d+)\)/) || number(/depth reached (\d+)/);
  const violated = /pan:1: (.*)/.exec(stdout)?.[1] ?? '';
  return { found: readResult(stdout, violated), states, depth, seconds, violated };
}

/** Only a search that reached its own end may say "no error"; only an assertion counts as an error. */
function readResult(stdout: string, violated: string): Outcome['found'] {
  if (violated.startsWith('assertion violated')) return 'error';
  const ended = /errors: 0\b/.test(stdout) && !/Search not completed|max search depth too small/.test(stdout);
  return ended ? 'ok' : 'not completed';
}

function run(directory: string, command: string, args: string[]) {
  return spawnSync(command, args, {
    cwd: directory,
    encoding: 'utf8',
    timeout: SEARCH_MS_MAX,
    maxBuffer: OUTPUT_BYTES_MAX,
  });
}

function mustRun(directory: string, command: string, args: string[]): void {
  const { status, stdout, stderr } = run(directory, command, args);
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}\n${stdout}${stderr}`);
}

function inTemporaryDirectory<T>(work: (directory: string) => T): T {
  const directory = mkdtempSync(join(tmpdir(), 'keyfence-model-'));
  try {
    return work(directory);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

function row(name: string, ...cells: (string | number)[]): string {
  return name.padEnd(40) + cells.map((cell, i) => (i < 3 ? `${cell}`.padStart(12) : `  ${cell}`)).join('');
}

if (import.meta.main) process.exitCode = main();
