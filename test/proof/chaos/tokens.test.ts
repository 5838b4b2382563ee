import { expect, test } from 'vitest';
import { share, turn } from '../../harness/share.ts';
import { DEPLOYMENTS } from './build.ts';
import { collectTokens } from './tokens.ts';

/**
 * Every fifth kind of fault once, on one deployment; which ones turns with the commit. SHARES=all takes every kind on each,
 * TOKEN_SECONDS=60 is the long run.
 */
const MS = 1000 * Number(process.env['TOKEN_SECONDS'] ?? 1);
const KINDS = Array.from({ length: 100 }, (_, kind) => kind);
const taken = new Set(share(KINDS, 5));

// This file has every second turn itself.
test.each(share(DEPLOYMENTS, 4, Math.floor(turn / 10)))(
  'no token outlives a complete stop through faults: %s',
  async (deployment) => {
    const { kept, faults } = await collectTokens(deployment, MS, (kind) => taken.has(kind));
    const [issued, stops] = [kept.count, kept.stops];
    console.log(JSON.stringify({ deployment, faults, issued, stops }));
    expect([...kept.outlived]).toEqual([]);
    expect(issued).toBeGreaterThan(50);
    expect(stops).toBeGreaterThan(5);
  },
);
