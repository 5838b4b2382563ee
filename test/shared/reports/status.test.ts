import { expect, test } from 'vitest';
import { APIS_LISTED_MAX, type VerifierStatus } from '../../../shared/protocol/records/verifier-status.ts';
import type { RedisNodes } from '../../../shared/redis/redis.ts';
import { StatusReport } from '../../../shared/reports/status-report.ts';
import { perVerdict } from '../../../shared/rules/verdict-codes.ts';
import type { Verifier } from '../../../verifier/core/verifier.ts';
import { Timeline } from '../../proof/simulation/clock.ts';

const healthy = (n: number) => ({
  apiId: `api_${n}`,
  member: `m${n}`,
  position: n,
  lag: 0,
  leaseRemainingMs: 9000 + n,
  canAnswer: true,
  live: true,
});

test('a full report has the worst APIs first', async () => {
  const timeline = new Timeline();
  const clock = {
    monotonicMs: () => timeline.nowMs,
    wallMs: () => timeline.nowMs,
    after: (ms: number, run: () => void) => timeline.after(ms, run),
  };
  const reports: VerifierStatus[] = [];
  const redis = {
    evalsha: async (_sha: string, keys: number, ...rest: string[]) =>
      reports.push(JSON.parse(rest[keys + 1] ?? '')),
    set: async () => 'OK',
    zrem: async () => 1,
  };
  const nodes = {
    run: (_key: string, work: (one: typeof redis) => Promise<unknown>) => work(redis),
  } as unknown as RedisNodes;
  const followers = [
    ...Array.from({ length: 150 }, (_, n) => healthy(n)),
    { ...healthy(150), apiId: 'short', leaseRemainingMs: 10 },
    { ...healthy(151), apiId: 'behind', lag: 3 },
    { ...healthy(152), apiId: 'far behind', lag: 7 },
    { ...healthy(153), apiId: 'lapsed', canAnswer: false, leaseRemainingMs: 0 },
    { ...healthy(154), apiId: 'joining', canAnswer: false, live: false, lag: 1, leaseRemainingMs: 0 },
  ];
  const report = new StatusReport({
    nodes,
    verifier: { id: 'verifier_1', followers, cache: { size: 5, evictions: 0 } } as unknown as Verifier,
    verdicts: () => ({ verdicts: { memory: 1, redis: 2 }, codes: { ...perVerdict(() => 0), VALID: 3 } }),
    clock,
    log: { debug: ({ err }: { err: unknown }) => expect.fail(String(err)) } as never,
    settings: { foreignKeys: false, syncPeriodMs: 1000 },
    usage: undefined,
    region: '',
    certificateEnds: () => undefined,
    periodMs: 1000,
  });
  const running = report.run();
  await timeline.run(500);
  const [{ apis, apisNotShown } = { apis: [], apisNotShown: 0 }] = reports;
  expect(apis.slice(0, 6).map(({ apiId, state }) => [apiId, state])).toEqual([
    ['joining', 'joining'],
    ['lapsed', 'lapsed'],
    ['far behind', 'live'],
    ['behind', 'live'],
    ['short', 'live'],
    ['api_0', 'live'],
  ]);
  expect(apis).toHaveLength(APIS_LISTED_MAX);
  expect(apisNotShown).toBe(followers.length - APIS_LISTED_MAX);
  const stopped = report.stop();
  await timeline.run(5000);
  await Promise.all([running, stopped]);
});
