import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { nextSeed, proofTotals, recordProof } from './proof-log.ts';
import { scratch } from './scratch.ts';

test('parts of a proof add up, with new seeds', () => {
  const folder = scratch('proofs');
  const file = join(folder, 'proofs.ndjson');
  try {
    expect(nextSeed('simulation', file)).toBe(1);
    const part = { proof: 'simulation', seeds: 100, minutes: 0.25, answers: 5, faults: 2, violations: 0 };
    recordProof({ ...part, seed: 1 }, file);
    recordProof({ ...part, seed: 101, violations: 1 }, file);
    recordProof({ ...part, proof: 'chaos single', seed: 7e8, seeds: 1 }, file);
    expect(nextSeed('simulation', file)).toBe(201);
    expect(proofTotals(file)).toEqual({
      simulation: { runs: 2, seeds: 200, minutes: 0.5, answers: 10, faults: 4, violations: 1 },
      'chaos single': { runs: 1, seeds: 1, minutes: 0.25, answers: 5, faults: 2, violations: 0 },
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
