import { expect, test } from 'vitest';
import { share, turn } from '../../harness/share.ts';
import { chaos, type Report } from './run.ts';

/**
 * A killed verifier and every fifth kind of fault once, on one deployment; which ones turns with the commit.
 * `npm run chaos` takes every kind on each, `npm run chaos -- --minutes 60` is the long run. A failure prints the seed.
 */
const MS = 5000;
const KILLED = 1;
const OTHERS = new Set(
  share(
    Array.from({ length: 100 }, (_, kind) => kind),
    5,
  ),
);
const takes = (kind: number) => kind === KILLED || OTHERS.has(kind);

const judge = (report: Report) => {
  console.log(JSON.stringify(report, undefined, 2));
  expect(report.stale).toEqual([]);
  expect(report.overspent).toEqual([]);
  expect(report.exceeded).toEqual([]);
  expect(report.brokeOff).toBeUndefined();
  expect(report.counts.answers).toBeGreaterThan(500);
  expect(report.counts.withRole).toBeGreaterThan(100);
  expect(report.counts.withIdentity).toBeGreaterThan(100);
  expect(report.counts.absent).toBeGreaterThan(0);
  expect(report.counts.acks).toBeGreaterThan(5);
  expect(report.counts.refused).toBeGreaterThan(0);
  expect(report.credits.accepted).toBeGreaterThan(100);
  expect(report.credits.exceeded).toBeGreaterThan(0);
  expect(report.credits.rerolls).toBeGreaterThan(0);
  expect(report.limits.accepted).toBeGreaterThan(100);
  // That it happened is enough: how often depends on how much a busy machine lets clients ask in a window. Between regions each
  // exchange takes so long that it may not happen.
  if (report.deployment !== 'regions') expect(report.limits.limited).toBeGreaterThan(0);
};

// Deployments turn once the fifths of the faults have gone round, so that each meets each of them.
const deployments = share(['single', 'sentinel', 'cluster', 'regions'] as const, 4, Math.floor(turn / 5));
const on = (deployment: (typeof deployments)[number]) =>
  deployments.includes(deployment) ? test : undefined;

on('single')?.('no verifier gives a stale answer while processes, connections and Redis fail', async () => {
  const report = await chaos('single', MS, turn, takes);
  judge(report);
  expect(report.counts.fence).toBeGreaterThan(0);
});

on('sentinel')?.('no verifier gives a stale answer through failovers with Sentinel', async () => {
  judge(await chaos('sentinel', MS, turn, takes));
});

on('cluster')?.('no verifier gives a stale answer while nodes of a Cluster fail and slots move', async () => {
  judge(await chaos('cluster', MS, turn, takes));
});

on('regions')?.(
  'no verifier gives a stale answer while regions are cut off and the far replica takes over',
  async () => {
    judge(await chaos('regions', MS, turn, takes));
  },
);
