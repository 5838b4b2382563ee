import { join } from 'node:path';
import { Redis } from 'ioredis';
import { request } from 'undici';
import { startRedis } from '../../deploy/dev/redis-server.ts';
import { type Benchmark, inDirectory, median, type Row } from '../harness.ts';
import { ROOT_KEY, startControlPlane } from '../servers.ts';

const BATCH = 10_000;
const FLAT = 1.5;

/** Measures a page of listKeys by the number of keys in the API. */
const listKeys: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    // Write the keys straight into Redis: a million createKey calls would measure something else.
    const redisServer = await startRedis(join(directory, 'redis'), ['--appendonly', 'no']);
    const redis = new Redis({ path: redisServer.url.replace('unix://', '') });
    const controlPlane = await startControlPlane({ REDIS_URL: redisServer.url });
    const rows: Row[] = [];
    let filled = 0;
    let base = 0;
    try {
      await redis.hset('kf:{bench}:head', { c: '1', L: '10000', Lf: '10000' });
      for (const count of quick ? [1000, 100_000] : [1000, 10_000, 100_000, 1_000_000]) {
        for (; filled < count; filled += BATCH) await addKeys(redis, filled, Math.min(count, filled + BATCH));
        filled = count;
        const value = median(await timesOfPages(controlPlane.address, count, quick ? 10 : 40));
        base ||= value;
        rows.push({
          name: `a page of 100 of ${count.toLocaleString('en')} keys: first, middle, last, filtered by enabled`,
          value: `median ${value.toFixed(2)} ms (${(value / base).toFixed(2)} ×)`,
          ...(count > 1000 ? { target: `≤ ${FLAT} × that of 1,000`, met: value / base <= FLAT } : {}),
        });
      }
    } finally {
      await controlPlane.stop();
      redis.disconnect();
      await redisServer.stop();
    }
    return {
      title: 'The cost of listing keys depends on the page, not on the API',
      about: 'One request at a time over loopback.',
      rows,
    };
  });

/** Writes keys straight into Redis, by their creation numbers. */
async function addKeys(redis: Redis, from: number, to: number): Promise<void> {
  const pipeline = redis.pipeline();
  for (let i = from; i < to; i++) {
    const keyId = `key_${String(i).padStart(20, '0')}`;
    const about = { i, p: `hash${i}`, s: 'abcd', e: i % 1000 ? '1' : '0', c: 1, n: `name ${i}` };
    pipeline.hset(`kf:{bench}:k:${keyId}`, about);
    pipeline.zadd('kf:{bench}:idx', i, keyId);
  }
  await pipeline.exec();
}

/**
 * Reads the first, a middle, the last and a filtered page in turn; returns how long each took, milliseconds,
 * leaving out the first turns.
 */
async function timesOfPages(address: string, count: number, turns: number): Promise<number[]> {
  const middle = Buffer.from(`asc:${Math.floor(count / 2)}`).toString('base64url');
  const queries = ['', `cursor=${middle}`, 'sort=-createdAt', 'enabled=false'];
  const ms: number[] = [];
  for (let i = 0; i < turns; i++) {
    for (const query of queries) {
      const startedAt = performance.now();
      const answer = await request(`${address}/v1/apis.listKeys?apiId=bench&${query}`, {
        headers: { authorization: `Bearer ${ROOT_KEY}` },
      });
      const { total } = (await answer.body.json()) as { total: number };
      const tookMs = performance.now() - startedAt;
      if (total !== count) throw new Error(`total is ${total}`);
      if (i > 3) ms.push(tookMs);
    }
  }
  return ms;
}

export default listKeys;
