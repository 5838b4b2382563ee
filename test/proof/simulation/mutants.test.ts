import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { MUTANTS, planted } from './mutants.ts';
import {
  AT_LEAST_SEEDS,
  CHANGING_LIMIT_SEEDS,
  CHANGING_PLAN_SEEDS,
  CREDIT_SEEDS,
  DELETION_SEEDS,
  HELD_LIMIT_SEEDS,
  HOLD_SEEDS,
  IDENTITY_SEEDS,
  LATE_TOKEN_SEEDS,
  LIMIT_SEEDS,
  NEARBY_SEEDS,
  REFILL_SEEDS,
  REROLL_SEEDS,
  ROLE_SEEDS,
  ROOT_KEY_SEEDS,
  SHARED_CREDIT_SEEDS,
  SHARED_LIMIT_SEEDS,
  TOKEN_SEEDS,
} from './plan.ts';
import { simulate } from './simulate.ts';

/**
 * Each mutant is shown by its seed, and by nothing else in that world. Where a change of the simulation makes a seed another
 * world, search for one that shows the mutant and is clean without it, and write that down.
 */
describe('is caught by its seed, which is clean without it:', () => {
  test.each(Object.entries(MUTANTS))('%s', async (name, { seed }) => {
    const caught = await run('--mutant', name, '--from', String(seed), '--seeds', '1');
    expect(
      caught.output,
      `npm run simulate -- --mutant '${name}' --seeds 1000 ${from(seed).join(' ')} searches another seed`,
    ).toMatch(/^seed \d+: I\d+: /m);
    expect(caught.code).toBe(1);
    const { violation } = await simulate(seed);
    expect(violation?.message).toBe(undefined);
  });
});

test.each(Object.values(MUTANTS))('$file has what its mutant changes', (mutant) => {
  for (const [, , of = mutant.file] of mutant.edits) {
    const file = new URL(`../../../${of}`, import.meta.url);
    const text = readFileSync(file, 'utf8');
    expect(planted(mutant, file.href, text)).not.toBe(text);
  }
});

test('--list says of each mutant what it breaks', async () => {
  const { output, code } = await run('--list');
  expect(code).toBe(0);
  const lines = output.trim().split('\n');
  expect(lines.map((line) => /^(.+) \(seed \d+\): .{20,} \(I\d+\)$/.exec(line)?.[1])).toEqual(
    Object.keys(MUTANTS),
  );
});

/** Mutants of credits show in worlds with credits only, those of limits and of rerolls where there are such. */
function from(seed: number): string[] {
  const first = [
    CHANGING_PLAN_SEEDS,
    LATE_TOKEN_SEEDS,
    AT_LEAST_SEEDS,
    NEARBY_SEEDS,
    HELD_LIMIT_SEEDS,
    TOKEN_SEEDS,
    DELETION_SEEDS,
    SHARED_LIMIT_SEEDS,
    CHANGING_LIMIT_SEEDS,
    SHARED_CREDIT_SEEDS,
    HOLD_SEEDS,
    ROOT_KEY_SEEDS,
    REFILL_SEEDS,
    IDENTITY_SEEDS,
    ROLE_SEEDS,
    REROLL_SEEDS,
    LIMIT_SEEDS,
    CREDIT_SEEDS,
  ].find((seeds) => seed >= seeds);
  return first === undefined ? [] : ['--from', String(first)];
}

const RUN = join(import.meta.dirname, 'run.ts');

function run(...args: string[]): Promise<{ output: string; code: unknown }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [RUN, ...args], (error, stdout, stderr) =>
      resolve({ output: stdout + stderr, code: error?.code ?? 0 }),
    );
  });
}
