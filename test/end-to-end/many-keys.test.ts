import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { apiKeys } from '../../shared/redis/redis-keys.ts';
import { generateKey, hashSecret } from '../../shared/rules/key-format.ts';
import { type Answer, Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { Process } from '../harness/processes.ts';

// Real processes that are stopped and killed in the midst of many changes; slow where the machine is busy.

const API = 'many';
const { head, log, members } = apiKeys(API);
const LEASE = { LEASE_MS: '60000', FENCE_WAIT_MS: '60000' };
let fleet: Fleet;
let redis: Redis;
let verifier: Process;
let keys: { key: string; keyId: string }[];

beforeEach(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: LEASE });
  redis = new Redis(fleet.redisUrl).on('error', () => undefined);
  verifier = new Process('verifier/main.ts', {
    ...{ REDIS_URL: fleet.redisUrl, API_IDS: API, LOOKUP_WAIT_MS: '10000' },
    ...{ SYNC_DEADLINE_MS: '20000', REDIS_COMMAND_TIMEOUT_MS: '20000' },
  });
  keys = [];
  for (let part = 0; part < 2; part++) {
    const made = Array.from({ length: 500 }, () => generateKey(16));
    const wanted = made.map((key) => ({ sha256: hashSecret(key), foreign: false }));
    const { results } = await fleet.ok('keys.importKeys', { apiId: API, keys: wanted });
    keys.push(...made.map((key, i) => ({ key, keyId: results[i].keyId })));
  }
  await verifier.start();
});
afterEach(async () => {
  await verifier.stop('SIGKILL');
  redis.disconnect();
  await fleet.stop();
});

const latest = async () => Number(await redis.hget(head, 's'));
const codeOf = async (key: string): Promise<string> => {
  let code = '';
  await fleet.until(async () => {
    const { status, body } = await fleet.post(`${verifier.address}/v1/keys.verifyKey`, { key });
    if (status === 200) code = body.code;
    return status === 200;
  });
  return code;
};
const codes = async () => {
  const found = new Set<string>();
  for (const { key } of keys.filter((_, i) => i % 50 === 0 || i === 999)) found.add(await codeOf(key));
  return [...found];
};
const drops = async () => {
  const { body } = await fleet.get(`${verifier.adminAddress}/metrics`);
  return [...String(body).matchAll(/^keyfence_drops_total\{reason="(\w+)"\} (\d+)$/gm)]
    .filter(([, , n]) => n !== '0')
    .map(([, reason]) => reason);
};
const setAll = (address: string, enabled: boolean, waitMs?: number): Promise<Answer> =>
  fleet.post(
    `${address}/v1/keys.updateKeys`,
    {
      ...{ apiId: API, keyIds: keys.map(({ keyId }) => keyId), enabled },
      ...(waitMs === undefined ? {} : { waitMs }),
    },
    { authorization: `Bearer ${ROOT_KEY}` },
  );
/** Somebody who acknowledges nothing, so that every part is waited for and there is a midst to act in. */
const slowDown = () => redis.zadd(members, 0, 'silent');
const speedUp = () => redis.zrem(members, 'silent');

describe('of many changes', () => {
  test('no burst throws out a frozen verifier', async () => {
    const { address } = fleet.controlPlanes[0] ?? { address: '' };
    expect(await codes()).toEqual(['VALID']);
    verifier.signal('SIGSTOP');
    let ended = 0;
    const calls = Array.from({ length: 12 }, (_, i) => async () => {
      const answer = await setAll(address, i % 2 === 0 ? false : i < 11, 0);
      ended++;
      return answer.status;
    });
    const statuses = (async () => {
      const found: number[] = [];
      for (const call of calls) found.push(await call());
      return found;
    })();
    await fleet.until(async () => (await latest()) >= 8050);
    // Time in which more would be written, if it were not held.
    for (let i = 0; i < 50; i++) await fleet.ok('keys.createKey', { apiId: 'other' });
    expect([await latest(), ended]).toEqual([8050, 8]);
    verifier.signal('SIGCONT');
    expect(await statuses).toEqual(calls.map(() => 200));
    expect(await redis.xlen(log)).toBeLessThan(12_000);
    expect((await setAll(address, false)).body.propagation).toMatchObject({ state: 'complete', by: 'acks' });
    expect(await codes()).toEqual(['DISABLED']);
    expect(await drops()).toEqual([]);
  });

  test('a kill leaves some written, done by a retry', async () => {
    const controlPlane = new Process('control-plane/main.ts', {
      REDIS_URL: fleet.redisUrl,
      ROOT_KEY,
      ...LEASE,
    });
    await controlPlane.start();
    expect(await codes()).toEqual(['VALID']);
    await slowDown();
    const cut = setAll(controlPlane.address, false).then(
      () => 'answered',
      () => 'cut',
    );
    await fleet.until(async () => (await latest()) >= 100);
    await controlPlane.stop('SIGKILL');
    expect(await cut).toBe('cut');
    const written = await latest();
    expect([written >= 100, written < 1000]).toEqual([true, true]);
    await speedUp();
    const { address } = fleet.controlPlanes[0] ?? { address: '' };
    const { body } = await setAll(address, false);
    expect(body.propagation).toMatchObject({ state: 'complete', by: 'acks', sequence: written + 1000 });
    expect(await codes()).toEqual(['DISABLED']);
    expect(await drops()).toEqual([]);
  });

  test('a Redis killed in their midst is 503', async () => {
    expect(await codes()).toEqual(['VALID']);
    await slowDown();
    const { address } = fleet.controlPlanes[0] ?? { address: '' };
    const cut = setAll(address, false);
    await fleet.until(async () => (await latest()) >= 100);
    const exited = new Promise((resolve) => fleet.redis.process.once('exit', resolve));
    fleet.redis.process.kill('SIGKILL');
    await exited;
    const { status, body } = await cut;
    expect([status, body.error.message]).toEqual([
      503,
      expect.stringMatching(/any of the keys may have been changed: send the call again$/),
    ]);
    await fleet.startRedis();
    await fleet.until(async () => (await speedUp()) >= 0);
    let complete = false;
    await fleet.until(async () => {
      complete = (await setAll(address, false)).body.propagation?.state === 'complete';
      return complete;
    });
    expect(await codes()).toEqual(['DISABLED']);
    expect(await drops()).toEqual([]);
    const { events } = await fleet.ok('audit.listEvents', { operation: 'keys.updateKeys', apiId: API });
    const outcomes = new Set(events.map(({ outcome }: { outcome: string }) => outcome));
    expect(outcomes.has('OK')).toBe(true);
  });
});
