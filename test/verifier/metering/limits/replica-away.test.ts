import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { windowKey } from '../../../../shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { SentinelGroup } from '../../../harness/redis-nodes.ts';
import { scratch } from '../../../harness/scratch.ts';

/** Of two replicas that confirm writes, one leads, or is away. */
const directory = scratch('replica-away');
let group: SentinelGroup;
let fleet: Fleet;

beforeAll(async () => {
  group = await SentinelGroup.start(directory);
  const env = { REDIS_MODE: 'sentinel', REDIS_URL: group.url, REDIS_REPLICAS: '2' };
  fleet = await Fleet.start({ verifiers: 2, redisUrl: group.url, env });
});
afterAll(async () => {
  await fleet?.stop();
  await group?.stop();
  rmSync(directory, { recursive: true });
});

const create = async (fields: object): Promise<string> => {
  const { key } = await fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
  for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
  return key;
};

test('a holder tells a new primary of a place that it does not know', async () => {
  const { key, keyId } = await fleet.ok('keys.createKey', {
    apiId: 'shop',
    concurrency: [{ name: 'jobs', limit: 1 }],
  });
  for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
  const hold = { forMs: 60_000 };
  expect(await fleet.verdict(key, { at: 0, hold })).toBe('VALID');
  const former = await group.primary();
  const pool = windowKey('shop', `${keyId}.0.jobs`);
  // As if it had died before a replica heard.
  expect(await former.command('DEL', pool)).toBe(1);
  for (const node of group.nodes) await node.until(async () => (await node.command('EXISTS', pool)) === 0);
  await former.stop();
  await fleet.until(async () => {
    const present = await group.primary();
    return present !== former && (await present.command('EXISTS', pool)) === 1;
  });
  expect(await fleet.verdict(key, { at: 1, hold })).toBe('CONCURRENCY_EXCEEDED');
  await former.restart();
  await fleet.until(async () => {
    const info = await (await group.primary()).command('INFO', 'replication');
    return String(info).includes('connected_slaves:2');
  });
});

test('limits, quotas and places are as before, and credits get 503', async () => {
  const minute = await create({ ratelimit: { limit: 6, duration: 3_600_000 } });
  const quota = await create({ ratelimit: { limit: 6, interval: 'month' } });
  const jobs = await create({ concurrency: [{ name: 'jobs', limit: 2 }] });
  const paid = await create({ remaining: 100 });
  const primary = await group.primary();
  await group.nodes.find((node) => node !== primary)?.stop();
  const hold = { forMs: 60_000 };
  for (let i = 0; i < 4; i++) {
    const at = i % 2;
    // Credits in the same moment do not hold up the others.
    const answers = [
      fleet.verifyOnce(paid, { at }),
      fleet.verifyOnce(minute, { at }),
      fleet.verifyOnce(quota, { at }),
      fleet.verifyOnce(jobs, { at, hold }),
    ];
    const [ofCredits, ...others] = await Promise.all(answers);
    expect(ofCredits?.status).toBe(503);
    expect(others.map(({ status, body }) => [status, body.code])).toEqual([
      [200, 'VALID'],
      [200, 'VALID'],
      [200, i < 2 ? 'VALID' : 'CONCURRENCY_EXCEEDED'],
    ]);
  }
  for (const key of [minute, quota]) expect(await fleet.verdict(key)).toBe('RATE_LIMITED');
});
