import { join } from 'node:path';
import { Redis } from 'ioredis';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { type Benchmark, inDirectory, percentile, type Row, startProcess } from '../harness.ts';
import { redisCpuOf } from '../redis-cpu.ts';
import { type ControlPlane, startControlPlane } from '../servers.ts';

const ROOT = join(import.meta.dirname, '../..');

/**
 * Measures the time from sending updateKey until it returns `complete` by acks, for fleets of several sizes.
 */
const propagation: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const redisServer = await startRedis(join(directory, 'redis'));
    const redis = new Redis({ path: redisServer.url.replace('unix://', '') });
    const controlPlane = await startControlPlane({ REDIS_URL: redisServer.url });
    const { call } = controlPlane;
    const parts = { redis, url: redisServer.url, call };
    const rows: Row[] = [];
    const rounds = quick ? 50 : 400;
    try {
      for (const count of [1, 10, 50, 100]) rows.push(...(await rowsOfFleet(parts, count, rounds)));
      await call('apis.createApi', { apiId: 'idle', name: 'idle' });
      const idle = quick ? 200 : 1000;
      const followers = await startFollowers(redisServer.url, idle, 'idle');
      const { share } = await redisCpuOf(
        redis,
        () => new Promise((resolve) => setTimeout(resolve, quick ? 3000 : 10_000)),
      );
      await followers.stop();
      rows.push({
        name: `${idle} idle verifiers (in one process)`,
        value: `${(share * 100).toFixed(1)} % of a core of Redis`,
      });
    } finally {
      await controlPlane.stop();
      redis.disconnect();
      await redisServer.stop();
    }
    return {
      title: 'Time until a disable is complete',
      about: `One control plane and one Redis (AOF, fsync always) make ${rounds} updates, one after the other. The verifiers run in one process, without HTTP, each with its own connection. No process is pinned to a core.`,
      rows,
    };
  });

/** Target medians, milliseconds, by the number of verifiers. */
const TARGETS: Readonly<Record<number, number>> = { 1: 4, 100: 20 };

const startFollowers = (url: string, count: number, apiId: string) =>
  startProcess(
    [process.execPath, join(ROOT, 'bench/changes/followers.ts'), String(count), apiId],
    { REDIS_URL: url },
    'live',
  );

/** Measures changes of a key that `count` verifiers follow. */
async function rowsOfFleet(
  { redis, url, call }: { redis: Redis; url: string; call: ControlPlane['call'] },
  count: number,
  rounds: number,
): Promise<Row[]> {
  const apiId = `fleet-${count}`;
  const { keyId } = await call('keys.createKey', { apiId });
  const followers = await startFollowers(url, count, apiId);
  const refusedNs = new Map<number, bigint>();
  followers.onLine((line) => {
    const { appliedByAll, atNs } = line as { appliedByAll: number; atNs: string };
    refusedNs.set(appliedByAll, BigInt(atNs));
  });
  const ms: number[] = [];
  const sentNs = new Map<number, bigint>();
  const change = async (i: number) => {
    const [startedAt, startedNs] = [performance.now(), process.hrtime.bigint()];
    const { propagation: done } = await call('keys.updateKey', { keyId, enabled: i % 2 === 0 });
    if (done?.by !== 'acks' || done.verifiers !== count) throw new Error(JSON.stringify(done));
    if (i < 0) return;
    ms.push(performance.now() - startedAt);
    sentNs.set(done.sequence, startedNs);
  };
  for (let i = -20; i < 0; i++) await change(i);
  const spent = await redisCpuOf(redis, async () => {
    for (let i = 0; i < rounds; i++) await change(i);
  });
  const cpu = spent.ms / rounds;
  await followers.stop();
  const p50 = percentile(ms, 0.5);
  const target = TARGETS[count];
  const row = {
    name: `updateKey → complete by acks, ${count} verifier${count > 1 ? 's (in one process)' : ''}: p50 / p99`,
    value: `${p50.toFixed(1)} / ${percentile(ms, 0.99).toFixed(1)} ms, Redis ${cpu.toFixed(2)} ms of CPU per update`,
    ...(target ? { target: `p50 ≤ ${target} ms`, met: p50 <= target } : {}),
  };
  if (count !== 50) return [row];
  const refused = [...sentNs].map(
    ([sequence, sent]) => Number((refusedNs.get(sequence) ?? sent) - sent) / 1e6,
  );
  const [half, most] = [percentile(refused, 0.5), percentile(refused, 0.99)];
  return [
    row,
    {
      name: 'updateKey sent → refused by the last of 50 verifiers (in one process): p50 / p99',
      value: `${half.toFixed(1)} / ${most.toFixed(1)} ms`,
      target: '≤ 8 / ≤ 30 ms',
      met: half <= 8 && most <= 30,
    },
  ];
}

export default propagation;
