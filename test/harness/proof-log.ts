/**
 * `npm run proof-log`: adds up what the long proofs did, each in parts of some minutes. Every whole run of `npm run chaos` and
 * `npm run simulate` appends a line to test/proof/proofs.ndjson, which is committed.
 */
import { execFileSync } from 'node:child_process';
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { scriptArguments } from '../../deploy/dev/arguments.ts';

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

if (import.meta.main) {
  scriptArguments(
    'npm run proof-log: adds up the runs of chaos and simulation that test/proof/proofs.ndjson has',
    {},
  );
  console.table(proofTotals());
}
