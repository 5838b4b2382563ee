import { join } from 'node:path';
import { Redis } from 'ioredis';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { type Benchmark, inDirectory, percentile, type Row, startProcess } from '../harness.ts';
import { startControlPlane } from '../servers.ts';

const ROOT = join(import.meta.dirname, '../..');

/** From updateKey being sent until it answered `complete` by acks, over fleets of verifiers. */
const propagation: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const redisServer = await startRedis(join(directory, 'redis'));
    const redis = new Redis({ path: redisServer.url.replace('unix://', '') });
    const controlPlane = await startControlPlane({ REDIS_URL: redisServer.url });
    const { call } = controlPlane;
    const redisCpuMs = async () => {
      const info = await redis.info('cpu');
      const of = (name: string) => Number(new RegExp(`${name}:(\\S+)`).exec(info)?.[1]);
      return (of('used_cpu_user') + of('used_cpu_sys')) * 1000;
    };
    const rows: Row[] = [];
    const rounds = quick ? 50 : 400;
    try {
      const targets: Record<number, number> = { 1: 4, 100: 20 };
      for (const count of [1, 10, 50, 100]) {
        const apiId = `fleet-${count}`;
        const { keyId } = await call('keys.createKey', { apiId });
        const followers = await startProcess(
          [process.execPath, join(ROOT, 'bench/changes/followers.ts'), String(count), apiId],
          { REDIS_URL: redisServer.url },
          'live',
        );
        const ms: number[] = [];
        const refusedNs = new Map<number, bigint>();
        followers.onLine((line) => {
          const { appliedByAll, atNs } = line as { appliedByAll: number; atNs: string };
          refusedNs.set(appliedByAll, BigInt(atNs));
        });
        const sentNs = new Map<number, bigint>();
        let cpu = 0;
        for (let i = -20; i < rounds; i++) {
          if (i === 0) cpu = await redisCpuMs();
          const startedAt = performance.now();
          const startedNs = process.hrtime.bigint();
          const { propagation: done } = await call('keys.updateKey', { keyId, enabled: i % 2 === 0 });
          if (done?.by !== 'acks' || done.verifiers !== count) throw new Error(JSON.stringify(done));
          if (i < 0) continue;
          ms.push(performance.now() - startedAt);
          sentNs.set(done.sequence, startedNs);
        }
        cpu = ((await redisCpuMs()) - cpu) / rounds;
        await followers.stop();
        const p50 = percentile(ms, 0.5);
        const target = targets[count];
        rows.push({
          name: `updateKey → complete by acks, ${count} verifier${count > 1 ? 's (in one process)' : ''}: p50 / p99`,
          value: `${p50.toFixed(1)} / ${percentile(ms, 0.99).toFixed(1)} ms, Redis ${cpu.toFixed(2)} ms of CPU each`,
          ...(target ? { target: `p50 ≤ ${target} ms`, met: p50 <= target } : {}),
        });
        if (count !== 50) continue;
        const refused = [...sentNs].map(
          ([sequence, sent]) => Number((refusedNs.get(sequence) ?? sent) - sent) / 1e6,
        );
        const [half, most] = [percentile(refused, 0.5), percentile(refused, 0.99)];
        rows.push({
          name: 'updateKey sent → refused by the last of 50 verifiers (in one process): p50 / p99',
          value: `${half.toFixed(1)} / ${most.toFixed(1)} ms`,
          target: '≤ 8 / ≤ 30 ms',
          met: half <= 8 && most <= 30,
        });
      }
      await call('apis.createApi', { apiId: 'idle', name: 'idle' });
      const idle = quick ? 200 : 1000;
      const followers = await startProcess(
        [process.execPath, join(ROOT, 'bench/changes/followers.ts'), String(idle), 'idle'],
        { REDIS_URL: redisServer.url },
        'live',
      );
      const [before, startedAt] = [await redisCpuMs(), performance.now()];
      await new Promise((resolve) => setTimeout(resolve, quick ? 3000 : 10_000));
      const share = ((await redisCpuMs()) - before) / (performance.now() - startedAt);
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
      title: 'How fast a disable is finished',
      about: `One control plane, one Redis (AOF, fsync always), ${rounds} updates one after the other; verifiers without HTTP, each with a connection of its own, in one process: what is measured is the protocol. Nothing pinned.`,
      rows,
    };
  });

export default propagation;
