import type { Redis } from 'ioredis';

/** Returns the CPU time of Redis so far, milliseconds. */
export async function redisCpuMs(redis: Redis): Promise<number> {
  const info = await redis.info('cpu');
  const seconds = (name: string) => Number(new RegExp(`${name}:(\\S+)`).exec(info)?.[1]);
  return (seconds('used_cpu_user') + seconds('used_cpu_sys')) * 1000;
}

/** Returns what Redis spends while `work` runs: CPU time, and its share of a core. */
export async function redisCpuOf(
  redis: Redis,
  work: () => Promise<unknown>,
): Promise<{ readonly ms: number; readonly share: number }> {
  const [before, startedAt] = [await redisCpuMs(redis), performance.now()];
  await work();
  const ms = (await redisCpuMs(redis)) - before;
  return { ms, share: ms / (performance.now() - startedAt) };
}
