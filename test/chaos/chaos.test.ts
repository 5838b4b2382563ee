import { expect, test } from 'vitest';
import { chaos, type Report } from './run.ts';

/** Every kind of fault once on each; `npm run chaos -- --minutes 60` is the long run. A failure prints the seed to run again with. */
const MS = 15_000;

const judge = (report: Report) => {
  console.log(JSON.stringify(report, undefined, 2));
  expect(report.stale).toEqual([]);
  expect(report.brokeOff).toBeUndefined();
  expect(report.counts.answers).toBeGreaterThan(1000);
  expect(report.counts.acks).toBeGreaterThan(20);
  expect(report.counts.refused).toBeGreaterThan(0);
};

test('no verifier gives a stale answer while processes, connections and Redis fail', async () => {
  const report = await chaos('single', MS, 20261121);
  judge(report);
  expect(report.counts.fence).toBeGreaterThan(0);
}, 240_000);

test('no verifier gives a stale answer through failovers with Sentinel', async () => {
  judge(await chaos('sentinel', MS, 20261121));
}, 240_000);

test('no verifier gives a stale answer while nodes of a Cluster fail and slots move', async () => {
  judge(await chaos('cluster', MS, 20261121));
}, 240_000);
