import { fork } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { numberArgument, scriptArguments } from '../../../deploy/dev/arguments.ts';
import { nextSeed, recordProof } from '../../harness/proof-log.ts';
import { install, MUTANTS } from './mutants.ts';
import type { Result } from './simulate.ts';

const USAGE = `npm run simulate -- [--seeds N] [--from N] [--seed N] [--mutant NAME] [--list]

Runs the protocol in a simulated world of faults, one world a seed, and checks every answer. Status 1 where one is wrong. A whole run
is noted in test/proof/proofs.ndjson; \`npm run proof-log\` adds all of them up.

  --seeds N      how many worlds (default 1000)
  --from N       the first seed (default: after those of test/proof/proofs.ndjson)
  --seed N       replays one seed and prints all that happened
  --mutant NAME  leaves one precaution out, and stops at the first seed that shows it
  --list         prints the mutants: what each does, and the seed that shows it`;

const { values } = scriptArguments(USAGE, {
  options: {
    seeds: { type: 'string', default: '1000' },
    from: { type: 'string' },
    seed: { type: 'string' },
    mutant: { type: 'string' },
    list: { type: 'boolean' },
  },
});
const from =
  values.from === undefined ? nextSeed('simulation') : numberArgument('from', values.from, 0, USAGE);
const seeds = numberArgument('seeds', values.seeds, 1, USAGE);
const seed = values.seed === undefined ? undefined : numberArgument('seed', values.seed, 0, USAGE);

/** Result of a share of the seeds. */
interface Tally {
  readonly totals: Record<string, number>;
  readonly violations: string[];
}

if (values.mutant !== undefined) install(values.mutant);
const { simulate } = await import('./simulate.ts');

if (values.list)
  for (const [name, mutant] of Object.entries(MUTANTS))
    console.log(`${name} (seed ${mutant.seed}): ${mutant.breaks}`);
else if (seed !== undefined) replay(await simulate(seed, true));
else if (values.mutant !== undefined) report(await runAll(from, seeds, true));
else if (process.send) process.send(await runAll(from, seeds, false));
else {
  const tally = await inParallel();
  report(tally);
  record(tally);
}

function replay({ trace, ...result }: Result): void {
  console.log(trace.join('\n'));
  console.log(result);
  if (result.violation) process.exitCode = 1;
}

function report({ totals, violations }: Tally): void {
  for (const violation of violations) console.log(violation);
  console.log(
    JSON.stringify({
      ...totals,
      violations: violations.length,
      seconds: Math.round(performance.now() / 1000),
    }),
  );
  if (violations.length > 0) process.exitCode = 1;
}

function record({ totals, violations }: Tally): void {
  recordProof({
    proof: 'simulation',
    seed: from,
    seeds,
    minutes: Math.round(performance.now() / 600) / 100,
    answers: totals['answers'] ?? 0,
    faults: 0,
    violations: violations.length,
  });
}

async function runAll(first: number, count: number, untilViolation: boolean): Promise<Tally> {
  const tally: Tally = { totals: { seeds: 0 }, violations: [] };
  for (let seed = first; seed < first + count; seed++) {
    const { violation, events, counts } = await simulate(seed);
    for (const [name, value] of Object.entries({ seeds: 1, events, ...counts }))
      tally.totals[name] = (tally.totals[name] ?? 0) + value;
    if (violation) tally.violations.push(`seed ${seed}: ${violation.message}`);
    if (violation && untilViolation) break;
  }
  return tally;
}

/** One process per core, each with its part of the seeds. */
async function inParallel(): Promise<Tally> {
  const processes = Math.min(availableParallelism(), seeds);
  const firsts = Array.from({ length: processes + 1 }, (_, i) => from + Math.floor((i * seeds) / processes));
  const tallies = await Promise.all(
    firsts.slice(1).map((end, i) => {
      const first = firsts[i] ?? from;
      const child = fork(import.meta.filename, ['--from', String(first), '--seeds', String(end - first)]);
      return new Promise<Tally>((resolve, reject) => {
        child.once('message', (tally: Tally) => resolve(tally));
        child.once('exit', (code) => reject(new Error(`a process of the simulation ended with ${code}`)));
      });
    }),
  );
  const sum: Tally = { totals: {}, violations: tallies.flatMap(({ violations }) => violations) };
  for (const [name, value] of tallies.flatMap(({ totals }) => Object.entries(totals)))
    sum.totals[name] = (sum.totals[name] ?? 0) + value;
  return sum;
}
