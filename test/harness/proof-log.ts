/**
 * `npm run proof-log`: adds up what the long proofs did, each in parts of some minutes. Every whole run of `npm run chaos` and
 * `npm run simulate` appends a line to test/proof/proofs.ndjson, which is committed. `npm run proof-log -- NAME COMMAND…` runs
 * another proof, and appends its line if it ends well.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { scriptArguments, wrongArguments } from '../../deploy/dev/arguments.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const FILE = join(ROOT, 'test/proof/proofs.ndjson');

/** One run of a proof. */
export interface Proof {
  /** Name of the proof, with its deployment: `chaos cluster`. */
  readonly proof: string;
  /** First seed, and how many. */
  readonly seed: number;
  readonly seeds: number;
  readonly minutes: number;
  readonly answers: number;
  /** Faults that were injected; 0 in a simulation, where each seed has its own. */
  readonly faults: number;
  /** Answers that were wrong, and runs that broke off: 0 in a proof. */
  readonly violations: number;
}

/** A run as the file has it. `commit` ends with + where the checkout had changes. */
type Line = Proof & { readonly date: string; readonly commit: string };

/** Appends a run to the file. */
export function recordProof(proof: Proof, file = FILE): void {
  const git = (...args: string[]) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim();
  const changed = git('status', '--porcelain', '--', '.', ':!test/proof/proofs.ndjson') === '' ? '' : '+';
  const commit = `${git('rev-parse', '--short=10', 'HEAD')}${changed}`;
  const line: Line = { date: new Date().toISOString().slice(0, 10), commit, ...proof };
  appendFileSync(file, `${JSON.stringify(line)}\n`);
}

/** All runs that the file has, oldest first. */
function recordedProofs(file = FILE): Line[] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean);
  return lines.map((line) => JSON.parse(line) as Line);
}

/** The first seed of a proof that is beyond all recorded ones. */
export function nextSeed(name: string, file = FILE): number {
  const ends = recordedProofs(file).flatMap(({ proof, seed, seeds }) =>
    proof === name ? [seed + seeds] : [],
  );
  return Math.max(1, ...ends);
}

/** Sums of all runs by proof. Seeds that ran twice count twice. */
export function proofTotals(file = FILE): Record<string, Omit<Proof, 'proof' | 'seed'> & { runs: number }> {
  const totals: ReturnType<typeof proofTotals> = {};
  for (const line of recordedProofs(file)) {
    const sum = totals[line.proof] ?? { runs: 0, seeds: 0, minutes: 0, answers: 0, faults: 0, violations: 0 };
    totals[line.proof] = {
      runs: sum.runs + 1,
      seeds: sum.seeds + line.seeds,
      minutes: Math.round((sum.minutes + line.minutes) * 100) / 100,
      answers: sum.answers + line.answers,
      faults: sum.faults + line.faults,
      violations: sum.violations + line.violations,
    };
  }
  return totals;
}

/** Proofs that are run once for a release; deploy/releasing.md has their commands. */
const ONCE = ['everything', 'upgrade', 'kubernetes'];
const CHAOS = { deployments: ['single', 'sentinel', 'cluster', 'regions'], minutes: 10, allMinutes: 60 };
/** A proof holds while these are as they were. */
const PROVED = ['control-plane', 'verifier', 'shared', 'deploy/redis', 'deploy/helm/keyfence/templates'];

/** Says of each proof that a release needs what is missing. Runs with violations, or of another program, do not count. */
export function missingProofs(root = ROOT, file = join(root, 'test/proof/proofs.ndjson')): string[] {
  const holds = new Map<string, boolean>();
  const isOfThis = (commit: string) => {
    const known = holds.get(commit);
    if (known !== undefined) return known;
    const { status } = spawnSync('git', ['diff', '--quiet', commit, 'HEAD', '--', ...PROVED], { cwd: root });
    holds.set(commit, status === 0);
    return status === 0;
  };
  const proofs = recordedProofs(file).filter(
    ({ violations, commit }) => violations === 0 && isOfThis(commit),
  );
  const minutesOf = (name: string) =>
    proofs.reduce((sum, { proof, minutes }) => sum + (proof.startsWith(name) ? minutes : 0), 0);
  return [
    ...ONCE.filter((name) => !proofs.some(({ proof }) => proof === name)),
    ...CHAOS.deployments
      .map((name) => `chaos ${name}`)
      .filter((name) => minutesOf(name) < CHAOS.minutes)
      .map((name) => `${name}: ${minutesOf(name)} of ${CHAOS.minutes} minutes`),
    ...(minutesOf('chaos') < CHAOS.allMinutes
      ? [`chaos: ${minutesOf('chaos')} of ${CHAOS.allMinutes} minutes in all`]
      : []),
  ];
}

/** Runs a proof, and appends its line if it ends well. Returns its status. */
function runProof(name: string, command: readonly string[]): number {
  const startedAtMs = performance.now();
  const { status } = spawnSync(command[0] ?? '', command.slice(1), { cwd: ROOT, stdio: 'inherit' });
  const minutes = Math.round((performance.now() - startedAtMs) / 600) / 100;
  if (status === 0)
    recordProof({ proof: name, seed: 0, seeds: 0, minutes, answers: 0, faults: 0, violations: 0 });
  return status ?? 1;
}

if (import.meta.main) {
  const usage = `npm run proof-log [-- NAME COMMAND…]

Adds up the runs that test/proof/proofs.ndjson has; with a command, runs it, and notes it under this name if it ends well.`;
  const { positionals } = scriptArguments(usage, { allowPositionals: true });
  const [name, ...command] = positionals;
  if (name === undefined) console.table(proofTotals());
  else if (command.length === 0) wrongArguments(`${name}: the command is missing.`, usage);
  else process.exitCode = runProof(name, command);
}
