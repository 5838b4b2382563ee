import { Redis } from 'ioredis';
import { createScript, recordCall } from '../../control-plane/redis/keys/new-key-record.ts';
import { type Benchmark, inDirectory, median } from '../harness.ts';
import { inParallel, startBackend } from '../servers.ts';

/** Measures changes per second with every write synced to disk, beside the bare script of a change. */
const writes: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const backend = await startBackend(directory, 1, []);
    const redis = new Redis({ path: backend.redisPath });
    const count = quick ? 2000 : 10_000;
    const rates: Record<'script' | 'create' | 'update', number[]> = { script: [], create: [], update: [] };
    const rate = async (work: (i: number) => Promise<unknown>) => {
      const startedAt = performance.now();
      await inParallel(count, work);
      return (count * 1000) / (performance.now() - startedAt);
    };
    try {
      // The bare script: that of createKey, called as the control plane calls it, with nothing around it.
      for (let round = 0; round < (quick ? 1 : 5); round++) {
        rates.script.push(await rate((i) => createWithScript(redis, `key_${round}_${i}`)));
        const ids: string[] = [];
        rates.create.push(
          await rate(async (i) => {
            ids[i] = (await backend.call('keys.createKey', { apiId: 'bench' })).keyId ?? '';
          }),
        );
        rates.update.push(
          await rate(async (i) => {
            const { propagation } = await backend.call('keys.updateKey', { keyId: ids[i], enabled: false });
            if (!propagation) throw new Error('not updated');
          }),
        );
      }
    } finally {
      redis.disconnect();
      await backend.stop();
    }
    const bare = median(rates.script);
    const row = (name: string, all: number[]) => ({
      name,
      value: `${Math.round(median(all)).toLocaleString('en')} per second (${(median(all) / bare).toFixed(2)} × the script)`,
    });
    return {
      title: 'Changes per second',
      about:
        'One control plane and one Redis (AOF, fsync always) serve 64 callers. No verifier follows the API. No process is pinned to a core.',
      rows: [
        row('the Lua script of createKey, called directly', rates.script),
        row('createKey', rates.create),
        row('updateKey', rates.update),
      ],
    };
  });

function createWithScript(redis: Redis, keyId: string): Promise<unknown> {
  const nowMs = Date.now();
  const key = { apiId: 'bare', keyId, secretHash: 'x'.repeat(43), start: 'kf_1234', meta: {}, enabled: true };
  const { keys, args } = recordCall({ ...key, createdAt: nowMs, foreign: false }, true, 10_000);
  return createScript.run(redis, keys, args);
}

export default writes;
