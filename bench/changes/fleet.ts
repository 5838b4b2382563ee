import { join } from 'node:path';
import { Redis } from 'ioredis';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { type Benchmark, inDirectory, percentile, type Row, type Running, startProcess } from '../harness.ts';
import { redisCpuOf } from '../redis-cpu.ts';
import { type ControlPlane, startControlPlane } from '../servers.ts';

const ROOT = join(import.meta.dirname, '../..');
const PROCESSES = 4;
const API = 'fleet';

/** Time in which a change is complete, for each verifier. */
const COMPLETE_MS_EACH = 0.075;

/**
 * Five thousand real followers of one API: the cost of a disable, of an idle second, and of restarting all at
 * once.
 */
const fleet: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const count = quick ? 400 : 5000;
    const server = await startRedis(join(directory, 'redis'));
    const redis = new Redis({ path: server.url.replace('unix://', '') });
    const controlPlane = await startControlPlane({ REDIS_URL: server.url });
    const start = (pace: Pace) => startFollowers(server.url, count, pace);
    let followers: Followers = [];
    try {
      const { keyId = '' } = await controlPlane.call('keys.createKey', { apiId: API });
      followers = await start('in-turn');
      const rest = () => new Promise((resolve) => setTimeout(resolve, quick ? 3000 : 10_000));
      const { share: idleShare } = await redisCpuOf(redis, rest);
      const times = quick ? 20 : 100;
      let ms: number[] = [];
      const changing = await redisCpuOf(redis, async () => {
        ms = await timesOfChanges(controlPlane, keyId, times, count);
      });
      for (const each of followers) await each.stop();
      const restart = await restartAll(redis, controlPlane, async () => {
        followers = await start('at-once');
      });
      return {
        title: 'A large fleet',
        about: `${count.toLocaleString('en')} verifiers of one API, without HTTP, in ${PROCESSES} processes. Each has its own connections. With one control plane and one Redis (AOF, fsync always), they share the cores of one machine; no process is pinned.`,
        rows: rowsOf({ count, ms, idleShare, changeCpuMs: changing.ms / times, restart }),
      };
    } finally {
      for (const each of followers) await each.stop();
      await controlPlane.stop();
      redis.disconnect();
      await server.stop();
    }
  });

type Pace = 'in-turn' | 'at-once';
type Followers = readonly Running<unknown>[];

const startFollowers = (url: string, count: number, pace: Pace): Promise<Followers> =>
  Promise.all(
    Array.from({ length: PROCESSES }, () =>
      startProcess(
        [process.execPath, join(ROOT, 'bench/changes/followers.ts'), String(count / PROCESSES), API, pace],
        { REDIS_URL: url },
        'live',
      ),
    ),
  );

/**
 * Changes a key `times` times, and returns how long each change took until all verifiers had confirmed it,
 * milliseconds.
 */
async function timesOfChanges(
  { call }: ControlPlane,
  keyId: string,
  times: number,
  verifiers: number,
): Promise<number[]> {
  const ms: number[] = [];
  for (let i = 0; i < times; i++) {
    const startedAt = performance.now();
    const { propagation } = await call('keys.updateKey', { keyId, enabled: i % 2 !== 0, waitMs: 30_000 });
    ms.push(performance.now() - startedAt);
    if (propagation?.by !== 'acks' || propagation.verifiers !== verifiers)
      throw new Error(JSON.stringify(propagation));
  }
  return ms;
}

/**
 * Measures a simultaneous start of all followers, and how long another caller of the control plane waits
 * meanwhile.
 */
async function restartAll(redis: Redis, { call }: ControlPlane, start: () => Promise<void>) {
  const waits: number[] = [];
  let isOver = false;
  const beside = async () => {
    while (!isOver) {
      const startedAt = performance.now();
      await call('keys.createKey', { apiId: 'another' });
      waits.push(performance.now() - startedAt);
    }
  };
  const startedAt = performance.now();
  let joinedMs = 0;
  const cpu = await redisCpuOf(redis, async () => {
    const calls = beside();
    await start();
    joinedMs = performance.now() - startedAt;
    isOver = true;
    await calls;
  });
  return { ...cpu, waits, joinedMs };
}

function rowsOf(measured: {
  readonly count: number;
  readonly ms: readonly number[];
  readonly idleShare: number;
  readonly changeCpuMs: number;
  readonly restart: Awaited<ReturnType<typeof restartAll>>;
}): Row[] {
  const { count, ms, idleShare, changeCpuMs, restart } = measured;
  const p50 = percentile(ms, 0.5);
  return [
    { name: 'CPU of Redis while no key changes', value: `${percent(idleShare)} of a core` },
    {
      name: `updateKey → complete by acks of all verifiers: p50 / p99 of ${ms.length} updates`,
      value: `${p50.toFixed(0)} / ${percentile(ms, 0.99).toFixed(0)} ms, Redis ${changeCpuMs.toFixed(1)} ms of CPU per update`,
      target: `p50 ≤ ${COMPLETE_MS_EACH * count} ms`,
      met: p50 <= COMPLETE_MS_EACH * count,
    },
    {
      name: 'all verifiers restart at once: time until the last one is in sync',
      value: `${(restart.joinedMs / 1000).toFixed(1)} s, including the start of ${PROCESSES} processes; Redis ${(restart.ms / count).toFixed(2)} ms of CPU per verifier, ${percent(restart.share)} of a core`,
    },
    {
      name: `createKey of another API during the restart: p50 / p99 / longest of ${restart.waits.length} calls`,
      value: `${percentile(restart.waits, 0.5).toFixed(1)} / ${percentile(restart.waits, 0.99).toFixed(0)} / ${Math.max(...restart.waits).toFixed(0)} ms`,
    },
  ];
}

const percent = (share: number) => `${(share * 100).toFixed(1)} %`;

export default fleet;
