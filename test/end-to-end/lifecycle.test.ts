import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { request } from 'undici';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type RedisServer, startRedis } from '../../deploy/dev/redis-server.ts';
import { Balancer, noBalancer } from '../harness/balancer.ts';
import { Load } from '../harness/load.ts';
import { metric } from '../harness/metrics.ts';
import { Process } from '../harness/processes.ts';
import { scratch } from '../harness/scratch.ts';
import { eventually } from '../harness/waiting.ts';

const ROOT_KEY = 'lifecycle-root-key-0123456789abcdef0123456789';
const ADMIN = { authorization: `Bearer ${ROOT_KEY}` };
const CALLERS = 12;
/** Each machine's speed is its own: what is tested is that nothing is lost, not how fast it comes. */
const PATIENT = { LOOKUP_WAIT_MS: '10000' };
/** Where every call must succeed: no Redis that is slow is out of reach, and no lease ends meanwhile. */
const UNHURRIED = { LEASE_MS: '60000' };

let directory: string;
let redis: RedisServer;
const stops: (() => Promise<unknown>)[] = [];

beforeEach(async () => {
  directory = scratch('lifecycle');
  redis = await startRedis(join(directory, 'redis'));
});
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
  await redis.stop();
  rmSync(directory, { recursive: true, force: true });
});

async function start(file: 'control-plane/main.ts' | 'verifier/main.ts', env: Record<string, string> = {}) {
  const secrets = file === 'control-plane/main.ts' ? { ROOT_KEY } : PATIENT;
  const process = new Process(file, { REDIS_URL: redis.url, ...secrets, ...env });
  stops.push(() => process.stop('SIGKILL'));
  await process.start();
  return process;
}

const statusOf = async (url: string) => {
  const { statusCode, body } = await request(url, { reset: true });
  await body.dump();
  return statusCode;
};
const untilReady = ({ adminAddress }: Process) =>
  eventually(async () => (await statusOf(`${adminAddress}/readyz`)) === 200);

// biome-ignore lint/suspicious/noExplicitAny: answers of several shapes
async function call(controlPlane: { address: string }, operation: string, body: object): Promise<any> {
  const answer = await request(`${controlPlane.address}/v1/${operation}`, {
    method: 'POST',
    headers: { ...ADMIN, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (answer.statusCode !== 200)
    throw new Error(`${operation}: ${answer.statusCode} ${await answer.body.text()}`);
  return answer.body.json();
}
const verifying = (key: string) => () => ({ path: '/v1/keys.verifyKey', body: { key } });
const managing = (keyId: string) => () => ({
  path: '/v1/keys.updateKey',
  body: { keyId, name: 'x' },
  headers: ADMIN,
});

describe('SIGTERM', () => {
  test('a verifier answers every connection and ends', async () => {
    const controlPlane = await start('control-plane/main.ts');
    const verifier = await start('verifier/main.ts');
    const { key } = await call(controlPlane, 'keys.createKey', { apiId: 'shop' });
    const load = new Load(verifier.address, verifying(key), { callers: CALLERS, untilClosed: true });
    await load.more(100);
    expect(await verifier.stop('SIGTERM')).toBe(0);
    await load.ended();
    expect(Object.keys(load.outcomes)).toEqual(['VALID']);
  });

  test('at a control plane: so do management calls', async () => {
    const controlPlane = await start('control-plane/main.ts');
    await start('verifier/main.ts', { API_IDS: 'shop' });
    const { keyId } = await call(controlPlane, 'keys.createKey', { apiId: 'shop' });
    const load = new Load(controlPlane.address, managing(keyId), { callers: CALLERS, untilClosed: true });
    await load.more(100);
    expect(await controlPlane.stop('SIGTERM')).toBe(0);
    await load.ended();
    expect(Object.keys(load.outcomes)).toEqual(['200']);
  });

  test('a call held for a verifier gets `pending`', async () => {
    const controlPlane = await start('control-plane/main.ts', { LEASE_MS: '60000' });
    const verifier = await start('verifier/main.ts', { API_IDS: 'shop' });
    const { keyId, key } = await call(controlPlane, 'keys.createKey', { apiId: 'shop' });
    const load = new Load(verifier.address, verifying(key), { callers: 1 });
    await load.more(5);
    await load.stop();
    verifier.signal('SIGSTOP');
    const held = call(controlPlane, 'keys.updateKey', { keyId, enabled: false });
    await eventually(async () => (await metric(controlPlane.adminAddress, 'keyfence_fences_pending')) === 1);
    expect(await controlPlane.stop('SIGTERM')).toBe(0);
    expect((await held).propagation).toMatchObject({ state: 'pending', verifiers: 1 });
  });
});

describe.skipIf(noBalancer)(`behind a balancer${noBalancer}`, () => {
  test('a rolling restart fails no verification', async () => {
    const controlPlane = await start('control-plane/main.ts', UNHURRIED);
    const { key } = await call(controlPlane, 'keys.createKey', { apiId: 'shop' });
    const other = await call(controlPlane, 'keys.createKey', { apiId: 'shop' });
    const verifiers = await Promise.all(
      [0, 1, 2].map(() => start('verifier/main.ts', { ...UNHURRIED, API_IDS: 'shop' })),
    );
    const balancer = await Balancer.start(directory, verifiers);
    stops.push(() => balancer.stop());

    const kept = new Load(balancer.address, verifying(key), { callers: CALLERS });
    const anew = new Load(balancer.address, verifying(key), { callers: 4, keepAlive: false });
    let rolling = true;
    const disabling = (async () => {
      for (let enabled = false; rolling; enabled = !enabled) {
        await call(controlPlane, 'keys.updateKey', { keyId: other.keyId, enabled });
        const answers = await Promise.all(
          verifiers.map(async () => {
            const { body } = await request(`${balancer.address}/v1/keys.verifyKey`, {
              method: 'POST',
              headers: { 'content-type': 'application/json' },
              body: JSON.stringify({ key: other.key }),
            });
            return ((await body.json()) as { code: string }).code;
          }),
        );
        expect(new Set(answers)).toEqual(new Set([enabled ? 'VALID' : 'DISABLED']));
      }
    })();
    disabling.catch(() => undefined);
    for (const verifier of verifiers) {
      await kept.more(100);
      expect(await verifier.stop('SIGTERM')).toBe(0);
      await kept.more(50);
      await verifier.start();
      await balancer.untilUp(verifiers.length);
    }
    rolling = false;
    await disabling;
    await Promise.all([kept.stop(), anew.stop()]);
    expect(kept.outcomes).toEqual({ VALID: expect.any(Number) });
    expect(anew.outcomes).toEqual({ VALID: expect.any(Number) });
  });

  test('control planes restart without a failed call', async () => {
    const controlPlanes = await Promise.all([0, 1].map(() => start('control-plane/main.ts', UNHURRIED)));
    await Promise.all(controlPlanes.map(untilReady));
    const balancer = await Balancer.start(directory, controlPlanes);
    stops.push(() => balancer.stop());
    const { key, keyId } = await call(balancer, 'keys.createKey', { apiId: 'shop' });
    const verifier = await start('verifier/main.ts', { ...UNHURRIED, API_IDS: 'shop' });
    const verifications = new Load(verifier.address, verifying(key), { callers: 4 });
    const updates = new Load(balancer.address, managing(keyId), { callers: 4 });
    const creations = new Load(
      balancer.address,
      () => ({ path: '/v1/keys.createKey', body: { apiId: 'shop' }, headers: ADMIN }),
      { callers: 4, keepAlive: false },
    );
    await untilReady(verifier);
    for (const controlPlane of controlPlanes) {
      await updates.more(50);
      expect(await controlPlane.stop('SIGTERM')).toBe(0);
      await updates.more(50);
      await controlPlane.start();
      await balancer.untilUp(controlPlanes.length);
    }
    await Promise.all([verifications.stop(), updates.stop(), creations.stop()]);
    expect(verifications.outcomes).toEqual({ VALID: expect.any(Number) });
    expect(updates.outcomes).toEqual({ 200: expect.any(Number) });
    expect(creations.outcomes).toEqual({ 200: expect.any(Number) });
  });
});

test('a sidecar refuses only during its restart', async () => {
  const controlPlane = await start('control-plane/main.ts');
  const { key } = await call(controlPlane, 'keys.createKey', { apiId: 'shop' });
  const sidecar = await start('verifier/main.ts', { API_IDS: 'shop', DRAIN_MS: '300' });
  const load = new Load(sidecar.address, verifying(key), { callers: 4, keepAlive: false });
  await load.more(50);
  const toldAtMs = performance.now();
  await sidecar.stop('SIGTERM');
  await sidecar.start();
  const listensAtMs = performance.now();
  await load.more(50);
  await load.stop();
  const { attempts } = load;
  // A connection that arrived in the very moment in which the listener closed is reset instead of refused.
  const refused = attempts.filter(({ outcome }) =>
    /^(ECONNREFUSED|ECONNRESET|UND_ERR_SOCKET)$/.test(outcome),
  );
  expect(refused.length).toBeGreaterThan(0);
  for (const { startedAtMs, endedAtMs } of refused) {
    expect(endedAtMs - toldAtMs).toBeGreaterThan(300);
    expect(startedAtMs).toBeLessThan(listensAtMs);
  }
  // From then on it says so itself while it is not in sync.
  const others = new Set(
    attempts.filter((attempt) => !refused.includes(attempt)).map(({ outcome }) => outcome),
  );
  expect([...others].filter((outcome) => outcome !== 'VALID' && outcome !== '503')).toEqual([]);
  expect(attempts.at(-1)?.outcome).toBe('VALID');
});

describe('probes', () => {
  test.each(['control-plane/main.ts', 'verifier/main.ts'] as const)(
    '%s: ready from the first contact to SIGTERM',
    async (file) => {
      redis.process.kill('SIGSTOP');
      const process = await start(file, file === 'verifier/main.ts' ? { API_IDS: 'shop' } : {});
      const { adminAddress } = process;
      expect(await statusOf(`${adminAddress}/readyz`)).toBe(503);
      expect(await statusOf(`${adminAddress}/livez`)).toBe(200);

      redis.process.kill('SIGCONT');
      await untilReady(process);
      redis.process.kill('SIGKILL');
      await eventually(async () => (await statusOf(`${process.address}/v1/apis.listApis`)) !== 200);
      expect(await statusOf(`${adminAddress}/readyz`)).toBe(200);
      expect(await statusOf(`${adminAddress}/livez`)).toBe(200);

      process.signal('SIGSTOP');
      await expect(request(`${adminAddress}/livez`, { headersTimeout: 300, reset: true })).rejects.toThrow();
      process.signal('SIGCONT');
      await eventually(async () => (await statusOf(`${adminAddress}/livez`)) === 200);

      const gone = process.stop('SIGTERM');
      await eventually(async () => (await statusOf(`${adminAddress}/readyz`)) === 503);
      expect(await statusOf(`${adminAddress}/livez`)).toBe(200);
      await gone;
    },
  );
});
