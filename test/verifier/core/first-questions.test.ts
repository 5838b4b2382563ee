import { type ChildProcess, spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FaultProxy } from '../../../deploy/dev/fault-proxy.ts';
import { engineSettings } from '../../../verifier/engine.ts';
import { Fleet } from '../../harness/fleet.ts';
import { metric, metricBy } from '../../harness/metrics.ts';
import { RedisNode } from '../../harness/redis-nodes.ts';
import { scratch } from '../../harness/scratch.ts';

/** Time of a packet to Redis and back, in milliseconds. */
const ROUND_TRIP_MS = 60;
/** As a verifier has them that nobody configured; other tests wait longer. */
const DEFAULTS = {
  LOOKUP_WAIT_MS: engineSettings.LOOKUP_WAIT_MS.default ?? '',
  REDIS_CONNECT_TIMEOUT_MS: '1000',
  REDIS_COMMAND_TIMEOUT_MS: '2000',
};
const directory = scratch('first-questions');
const busy: ChildProcess[] = [];
let node: RedisNode;
let proxy: FaultProxy;
let fleet: Fleet;
let REDIS_URL: string;
beforeAll(async () => {
  node = await RedisNode.start(directory);
  proxy = new FaultProxy(() => node.port, ROUND_TRIP_MS / 2);
  proxy.set('delay');
  REDIS_URL = `redis://127.0.0.1:${await proxy.listen()}`;
  fleet = await Fleet.start({ redisUrl: node.url, verifiers: 0 });
});
afterAll(async () => {
  for (const each of busy) each.kill('SIGKILL');
  await fleet.stop();
  proxy.close();
  await node.stop();
  rmSync(directory, { recursive: true, force: true });
});

test('a far Redis and a busy host cost no verdict', async () => {
  const { address } = await fleet.addVerifier({ ...DEFAULTS, REDIS_URL });
  for (let i = 0; i < 4; i++) busy.push(spawn(process.execPath, ['-e', 'for (;;);']));
  const ask = async (key: string) => {
    return (await fleet.post(`${address}/v1/keys.verifyKey`, { key })).status;
  };
  const outcomes: number[] = [];
  for (let i = 0; i < 20; i++) {
    const make = async () => (await fleet.ok('keys.createKey', { apiId: `api-${i}` })).key as string;
    const [first = '', ...others] = await Promise.all(Array.from({ length: 10 }, make));
    // Nobody follows the API yet, then it is followed.
    outcomes.push(await ask(first), ...(await Promise.all(others.map(ask))));
  }
  expect(outcomes.filter((status) => status !== 200)).toEqual([]);
  expect(outcomes).toHaveLength(200);
});

test('listens when it has a session, not before', async () => {
  const own = { REDIS_URL, API_IDS: 'shop', LOOKUP_WAIT_MS: '10000' };
  const { adminAddress } = await fleet.addVerifier({ ...DEFAULTS, ...own }, false);
  expect((await fleet.get(`${adminAddress}/readyz`)).status).toBe(200);
});

test('a far Redis is told from a silent one', async () => {
  const { key } = await fleet.ok('keys.createKey', { apiId: 'far' });
  const { address, adminAddress } = await fleet.addVerifier({
    ...DEFAULTS,
    REDIS_URL,
    LOOKUP_WAIT_MS: '100',
  });
  expect((await fleet.post(`${address}/v1/keys.verifyKey`, { key })).status).toBe(503);
  const reasons = await metricBy(adminAddress, 'keyfence_undecided_total', 'reason');
  expect(reasons).toMatchObject({ slow: 1, silent: 0, redis: 0 });
  const tripS = await metric(adminAddress, 'keyfence_redis_round_trip_seconds');
  expect(tripS).toBeGreaterThanOrEqual(ROUND_TRIP_MS / 1000);
});
