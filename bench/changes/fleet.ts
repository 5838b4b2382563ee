import { join } from 'node:path';
import { Redis } from 'ioredis';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { type Benchmark, inDirectory, percentile, startProcess } from '../harness.ts';
import { startControlPlane } from '../servers.ts';

const ROOT = join(import.meta.dirname, '../..');
const PROCESSES = 4;
const API = 'fleet';

/** Two thousand real followers of one API: what a disable, an idle second and a restart of all of them at once cost. */
const fleet: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const count = quick ? 400 : 2000;
    const server = await startRedis(join(directory, 'redis'));
    const redis = new Redis({ path: server.url.replace('unix://', '') });
    const controlPlane = await startControlPlane({ REDIS_URL: server.url });
    const { call } = controlPlane;
    const { keyId } = await call('keys.createKey', { apiId: API });
    const disable = async (enabled: boolean) => {
      const startedAt = performance.now();
      const { propagation } = await call('keys.updateKey', { keyId, enabled, waitMs: 30_000 });
      return { ms: performance.now() - startedAt, propagation };
    };
    const start = (pace: 'in-turn' | 'at-once') =>
      Promise.all(
        Array.from({ length: PROCESSES }, () =>
          startProcess(
            [
              process.execPath,
              join(ROOT, 'bench/changes/followers.ts'),
              String(count / PROCESSES),
              API,
              pace,
            ],
            { REDIS_URL: server.url },
            'live',
          ),
        ),
      );
    let followers: Awaited<ReturnType<typeof start>> = [];
    try {
      followers = await start('in-turn');
      const idle = await busy(
        redis,
        () => new Promise((resolve) => setTimeout(resolve, quick ? 3000 : 10_000)),
      );
      const ms: number[] = [];
      const changing = await busy(redis, async () => {
        for (let i = 0; i < (quick ? 20 : 100); i++) {
          const done = await disable(i % 2 === 0);
          if (done.propagation?.by !== 'acks' || done.propagation.verifiers !== count)
            throw new Error(JSON.stringify(done.propagation));
          ms.push(done.ms);
        }
      });
      for (const each of followers) await each.stop();
      const waits: number[] = [];
      const joining = { isOver: false };
      const startedAt = performance.now();
      const beside = async () => {
        while (!joining.isOver) {
          const askedAt = performance.now();
          await call('keys.createKey', { apiId: 'another' });
          waits.push(performance.now() - askedAt);
        }
      };
      let joinedMs = 0;
      const restart = await busy(redis, async () => {
        const others = beside();
        followers = await start('at-once');
        joinedMs = performance.now() - startedAt;
        joining.isOver = true;
        await others;
      });
      const p50 = percentile(ms, 0.5);
      return {
        title: 'A large fleet',
        about: `${count.toLocaleString('en')} verifiers of one API without HTTP, in ${PROCESSES} processes, each with connections of its own; one control plane, one Redis (AOF, fsync always), all on this machine: they share its cores, which a real fleet does not. Nothing pinned.`,
        rows: [
          { name: 'idle: Redis', value: `${percent(idle.share)} of a core` },
          {
            name: `updateKey → complete by acks of all: p50 / p99, ${ms.length} of them`,
            value: `${p50.toFixed(0)} / ${percentile(ms, 0.99).toFixed(0)} ms, Redis ${(changing.cpuMs / ms.length).toFixed(1)} ms of CPU each`,
            target: 'p50 ≤ 150 ms',
            met: p50 <= 150,
          },
          {
            name: 'all restarted at once: until the last one follows again',
            value: `${(joinedMs / 1000).toFixed(1)} s, of it the start of ${PROCESSES} processes; Redis ${(restart.cpuMs / count).toFixed(2)} ms of CPU each, ${percent(restart.share)} of a core`,
          },
          {
            name: `createKey of another API meanwhile: p50 / p99 / longest, ${waits.length} of them`,
            value: `${percentile(waits, 0.5).toFixed(1)} / ${percentile(waits, 0.99).toFixed(0)} / ${Math.max(...waits).toFixed(0)} ms`,
          },
        ],
      };
    } finally {
      for (const each of followers) await each.stop();
      await controlPlane.stop();
      redis.disconnect();
      await server.stop();
    }
  });

/** What Redis spends while something is done. */
async function busy(redis: Redis, work: () => Promise<unknown>) {
  const [before, startedAt] = [await cpuMs(redis), performance.now()];
  await work();
  const spent = (await cpuMs(redis)) - before;
  return { cpuMs: spent, share: spent / (performance.now() - startedAt) };
}

async function cpuMs(redis: Redis): Promise<number> {
  const info = await redis.info('cpu');
  const of = (name: string) => Number(new RegExp(`${name}:(\\S+)`).exec(info)?.[1]);
  return (of('used_cpu_user') + of('used_cpu_sys')) * 1000;
}

const percent = (share: number) => `${(share * 100).toFixed(1)} %`;

export default fleet;
