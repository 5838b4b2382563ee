import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { afterEach, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../shared/process/clock.ts';
import { createLogger } from '../../shared/process/log.ts';
import { RedisDirectory } from '../../shared/protocol/follower/session.ts';
import { RedisNodes } from '../../shared/redis/redis.ts';
import { apiKeys } from '../../shared/redis/redis-keys.ts';
import { generateKey } from '../../shared/rules/key-format.ts';
import { questionAbout } from '../../verifier/core/question.ts';
import { Verifier } from '../../verifier/core/verifier.ts';
import { metered } from '../../verifier/metering/metering.ts';
import { redisConfig } from '../harness/config.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { metric, metricBy } from '../harness/metrics.ts';
import { noCredits } from '../harness/no-credits.ts';
import { Process } from '../harness/processes.ts';
import { PATIENT } from '../harness/waiting.ts';

let fleet: Fleet;
const processes: Process[] = [];
afterEach(async () => {
  await Promise.all(processes.splice(0).map((process) => process.stop('SIGKILL')));
  await fleet.stop();
});

/** A verifier in a process of its own, which can be paused. */
async function verifierProcess(env: Record<string, string> = {}): Promise<Process> {
  const verifier = new Process('verifier/main.ts', { REDIS_URL: fleet.redisUrl, LOG_LEVEL: 'info', ...env });
  processes.push(verifier);
  await verifier.start();
  return verifier;
}

/** The code of a verdict there, asked until it can decide. */
async function verdictAt(address: string, key: string): Promise<string> {
  let code = '';
  await fleet.until(async () => {
    const { status, body } = await fleet.post(`${address}/v1/keys.verifyKey`, { key });
    if (status === 200) code = body.code;
    return status === 200;
  });
  return code;
}

async function redisCall(...args: string[]): Promise<unknown> {
  const redis = new Redis({ path: fleet.redisUrl.replace('unix://', ''), lazyConnect: true });
  await redis.connect();
  try {
    const [name = '', ...rest] = args;
    return await redis.call(name, ...rest);
  } finally {
    redis.disconnect();
  }
}

describe('Redis', () => {
  test('is missing at first: 503 until it is there', async () => {
    fleet = await Fleet.start({ verifiers: 0 });
    await fleet.redis.stop();
    const verifier = await fleet.addVerifier({ API_IDS: 'early' }, false);
    const lazy = await fleet.addVerifier({}, false);
    for (const { address, adminAddress } of [verifier, lazy]) {
      expect((await fleet.get(`${adminAddress}/readyz`)).status).toBe(503);
      expect((await fleet.get(`${adminAddress}/livez`)).status).toBe(200);
      expect((await fleet.post(`${address}/v1/keys.verifyKey`, { key: generateKey(16) })).status).toBe(503);
    }
    expect((await fleet.admin('keys.createKey', { apiId: 'early' })).status).toBe(503);
    await fleet.startRedis();
    for (const { adminAddress } of [verifier, lazy]) {
      await fleet.until(async () => (await fleet.get(`${adminAddress}/readyz`)).status === 200);
    }
    await fleet.until(async () => (await fleet.admin('keys.createKey', { apiId: 'early' })).status === 200);
    const { key } = await fleet.ok('keys.createKey', { apiId: 'early' });
    expect(await verdictAt(verifier.address, key)).toBe('VALID');
  });

  test('when Redis restarts empty, verifiers forget all keys and no longer accept them', async () => {
    fleet = await Fleet.start();
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'lost' });
    await fleet.ok('keys.updateKey', { keyId, name: 'changed' });
    expect(await fleet.verdict(key)).toBe('VALID');
    await fleet.redis.stop();
    rmSync(join(fleet.directory, 'redis'), { recursive: true });
    await fleet.startRedis();
    await fleet.until(async () => (await fleet.verify(key)).body.code === 'NOT_FOUND');
    expect((await fleet.admin('keys.getKey', { keyId })).status).toBe(404);
    expect(fleet.logged.some((line) => /"reason":"(noreg|diverged)"/.test(line))).toBe(true);
  });

  test('denies by ACL: 503, logged, and nobody exits', async () => {
    fleet = await Fleet.start();
    const { key } = await fleet.ok('keys.createKey', { apiId: 'acl' });
    await redisCall('ACL', 'SETUSER', 'nobody', 'on', '>pw', '~nothing*', '+@connection', '+info');
    const env = { REDIS_USERNAME: 'nobody', REDIS_PASSWORD: 'pw' };
    const verifier = await fleet.addVerifier({ ...env, API_IDS: 'acl' }, false);
    await fleet.until(() => fleet.logged.some((line) => line.includes('permit +eval +evalsha')));
    expect((await fleet.get(`${verifier.adminAddress}/readyz`)).status).toBe(503);
    expect((await fleet.post(`${verifier.address}/v1/keys.verifyKey`, { key })).status).toBe(503);
    expect(fleet.logged.join('').includes('"pw"')).toBe(false);
    await redisCall('ACL', 'SETUSER', 'nobody', '~*', '&*', '+@all');
    await fleet.until(async () => (await fleet.get(`${verifier.adminAddress}/readyz`)).status === 200);
    expect(await verdictAt(verifier.address, key)).toBe('VALID');
  });
});

test('a remade API has verdicts at once', async () => {
  // A busy machine is not what this is about.
  fleet = await Fleet.start({ verifiers: 2, env: { LOOKUP_WAIT_MS: '10000' } });
  for (let round = 0; round < 2; round++) {
    const { key } = await fleet.ok('keys.createKey', { apiId: 'again' });
    const answers = await Promise.all(
      fleet.verifiers.map(({ address }) => fleet.post(`${address}/v1/keys.verifyKey`, { key })),
    );
    expect(answers.map(({ status, body }) => [status, body.code ?? body.error])).toEqual([
      [200, 'VALID'],
      [200, 'VALID'],
    ]);
    await fleet.ok('apis.deleteApi', { apiId: 'again' });
    await fleet.until(async () => (await fleet.client.exists(apiKeys('again').head)) === 0);
  }
});

describe('a verifier that slept', () => {
  test('through 1,000 changes knows them all at first', async () => {
    fleet = await Fleet.start({ verifiers: 0 });
    const keys = await Promise.all(
      Array.from({ length: 50 }, () => fleet.ok('keys.createKey', { apiId: 'sleep' })),
    );
    const verifier = await verifierProcess();
    for (const { key } of keys) expect(await verdictAt(verifier.address, key)).toBe('VALID');
    verifier.signal('SIGSTOP');
    for (let round = 0; round < 20; round++) {
      const enabled = round < 19 ? round % 2 === 1 : false;
      await Promise.all(keys.map(({ keyId }) => fleet.ok('keys.updateKey', { keyId, enabled, waitMs: 0 })));
    }
    verifier.signal('SIGCONT');
    for (const { key } of keys) {
      const { status, body } = await fleet.post(`${verifier.address}/v1/keys.verifyKey`, { key });
      // Within its lease it may still answer from before: nothing was complete without it. Complete means refused.
      if (status === 200) expect(['VALID', 'DISABLED']).toContain(body.code);
    }
    const last = await fleet.ok('keys.updateKey', { keyId: keys[0]?.keyId, enabled: false });
    expect(last.propagation.state).toBe('complete');
    for (const { key } of keys) {
      const { status, body } = await fleet.post(`${verifier.address}/v1/keys.verifyKey`, { key });
      if (status === 200) expect(body.code).toBe('DISABLED');
      expect(await verdictAt(verifier.address, key)).toBe('DISABLED');
    }
  });

  test('past a trimmed log starts anew', async () => {
    fleet = await Fleet.start({ verifiers: 0, env: { LEASE_MS: '60000' } });
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'trim' });
    const verifier = await verifierProcess();
    expect(await verdictAt(verifier.address, key)).toBe('VALID');
    verifier.signal('SIGSTOP');
    // Otherwise it would find every message in its socket.
    expect(Number(await redisCall('CLIENT', 'KILL', 'TYPE', 'pubsub'))).toBe(1);
    for (const enabled of [true, true, false])
      await fleet.ok('keys.updateKey', { keyId, enabled, waitMs: 0 });
    await redisCall('XTRIM', 'kf:{trim}:log', 'MAXLEN', '0');
    verifier.signal('SIGCONT');
    await fleet.until(async () => (await verdictAt(verifier.address, key)) === 'DISABLED');
    await fleet.until(() => verifier.output.includes('"reason":"trimmed"'));
  });
});

describe('a clock', () => {
  const shifted = (): Clock & { shiftMs: number } => ({
    ...systemClock,
    shiftMs: 0,
    wallMs() {
      return systemClock.wallMs() + this.shiftMs;
    },
  });

  test.each([
    ['forward', 3_600_000],
    ['back', -3_600_000],
  ])('an hour wrong costs only some 503s: set %s', async (_, shiftMs) => {
    fleet = await Fleet.start({ verifiers: 0 });
    const clock = shifted();
    await fleet.addVerifier({}, true, clock);
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'clock' });
    const expiring = await fleet.ok('keys.createKey', { apiId: 'clock', expires: Date.now() + 2000 });
    expect(await fleet.verdict(key)).toBe('VALID');
    await fleet.until(async () => (await fleet.verdict(expiring.key)) === 'EXPIRED');
    clock.shiftMs = shiftMs;
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(propagation.state).toBe('complete');
    const { status, body } = await fleet.verifyOnce(key);
    if (status === 200) expect(body.code).toBe('DISABLED');
    expect(await fleet.verdict(key)).toBe('DISABLED');
    // An expired key stays expired, also where the date says that it is not.
    expect(await fleet.verdict(expiring.key)).toBe('EXPIRED');
    clock.shiftMs = 0;
    expect(await fleet.verdict(key)).toBe('DISABLED');
    expect(await fleet.verdict(expiring.key)).toBe('EXPIRED');
  });
});

test('a stall past the lease is judged by the clock', async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  const controlPlane = new Process('control-plane/main.ts', {
    REDIS_URL: fleet.redisUrl,
    ROOT_KEY,
    LEASE_MS: '1000',
    LOG_LEVEL: 'info',
  });
  processes.push(controlPlane);
  await controlPlane.start();
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'stall' });
  await redisCall('HSET', 'kf:{stall}:head', 'L', '1000', 'Lf', '1000');

  const config = redisConfig({ REDIS_URL: fleet.redisUrl, ...PATIENT });
  const log = createLogger('verifier', 'silent');
  const nodes = new RedisNodes(config, systemClock, log);
  const silent = () => undefined;
  const verifier = new Verifier({
    ...metered(noCredits),
    directory: new RedisDirectory(nodes, 0, systemClock),
    clock: systemClock,
    newNonce: randomUUID,
    apiIds: ['stall'],
    foreignKeys: false,
    limits: {
      syncPeriodMs: 300,
      syncDeadlineMs: 250,
      cacheKeysMax: 10,
      unknownKeysMax: 10,
      unknownTtlMs: 1000,
      lookupsInFlightMax: 10,
      lookupsQueuedMax: 10,
      lookupWaitMs: 1000,
      apisMax: 10,
      apiIdleMs: 60_000,
    },
    events: () => ({
      live: silent,
      dropped: silent,
      disconnected: silent,
      resumed: silent,
      gap: silent,
      applied: silent,
    }),
  });
  verifier.start();
  await fleet.until(async () => verifier.followers[0]?.live === true);
  await verifier.lookUp(questionAbout(key));
  expect(verifier.decide(questionAbout(key))?.code).toBe('VALID');

  // Another process disables the key while this one hangs.
  const body = JSON.stringify({ keyId, enabled: false });
  const disabling = promisify(execFile)('curl', [
    '-s',
    '-H',
    `authorization: Bearer ${ROOT_KEY}`,
    '-H',
    'content-type: application/json',
    '-d',
    body,
    `${controlPlane.address}/v1/keys.updateKey`,
  ]);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3000);
  const first = verifier.decide(questionAbout(key));
  expect(first?.code).not.toBe('VALID');
  expect(JSON.parse((await disabling).stdout).propagation).toMatchObject({ state: 'complete', by: 'fence' });
  await fleet.until(
    async () => (await verifier.lookUp(questionAbout(key)).catch(() => undefined))?.code === 'DISABLED',
  );
  await verifier.stop();
  await nodes.close();
});

test('two control planes write a key in one order', async () => {
  fleet = await Fleet.start({ verifiers: 2 });
  await fleet.addControlPlane();
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'two' });
  for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, n) =>
      fleet.ok('keys.updateKey', { keyId, enabled: n % 3 === 0, meta: { n } }, { at: n % 2 }),
    ),
  );
  const sequences = answers.map(({ propagation }) => propagation.sequence);
  expect(new Set(sequences).size).toBe(100);
  const lastN = sequences.indexOf(Math.max(...sequences));
  const shown = await fleet.ok('keys.getKey', { keyId }, { at: 1 });
  expect(shown).toMatchObject({ meta: { n: lastN }, enabled: lastN % 3 === 0 });
  for (const at of [0, 1])
    expect((await fleet.verify(key, { at })).body).toMatchObject({
      meta: { n: lastN },
      enabled: lastN % 3 === 0,
    });
});

test('fences wait for the longest lease alive', async () => {
  fleet = await Fleet.start({ env: { LEASE_MS: '1500' } });
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'lease' });
  expect(await fleet.verdict(key)).toBe('VALID');
  const lease = async () =>
    ((await redisCall('HMGET', 'kf:{lease}:head', 'L', 'Lf')) as string[]).map(Number);
  const remaining = async () => {
    const series = await metricBy(
      fleet.verifiers[0]?.adminAddress,
      'keyfence_lease_remaining_seconds',
      'api_id',
    );
    return Number(Object.values(series)[0]) * 1000;
  };
  expect(await lease()).toEqual([1500, 1500]);
  await fleet.addControlPlane({ LEASE_MS: '4000' });
  await fleet.until(async () => (await lease()).join() === '4000,4000');
  await fleet.until(async () => (await remaining()) > 1500);
  expect((await fleet.ok('keys.updateKey', { keyId, enabled: false })).propagation.by).toBe('acks');

  await fleet.addControlPlane({ LEASE_MS: '1000' });
  const seen: string[] = [];
  await fleet.until(async () => {
    const now = (await lease()).join();
    if (seen.at(-1) !== now) seen.push(now);
    return now === '1000,1000';
  });
  // Granted first, fenced one old fence later.
  expect(seen.slice(-2)).toEqual(['1000,4000', '1000,1000']);
  expect(await remaining()).toBeLessThanOrEqual(1000);
  expect(await fleet.verdict(key)).toBe('DISABLED');
});

test('rolling restarts: no fence, no stale accept', async () => {
  fleet = await Fleet.start({ verifiers: 3 });
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'rolling' });
  for (const at of [0, 1, 2]) expect(await fleet.verdict(key, { at })).toBe('VALID');
  let restarting = true;
  const by = new Set<string>();
  const wrong: unknown[] = [];
  const disables = (async () => {
    for (let n = 0; restarting || n < 20; n++) {
      const enabled = n % 2 === 1;
      const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled });
      by.add(propagation.by);
      for (const at of fleet.verifiers.keys()) {
        const answer = await fleet.verifyOnce(key, { at }).catch(() => undefined);
        if (answer?.status === 200 && answer.body.valid !== enabled) wrong.push(answer.body);
      }
    }
  })();
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < 3; i++) {
      await fleet.addVerifier();
      await fleet.verifiers[0]?.stop();
      fleet.verifiers.shift();
    }
  }
  restarting = false;
  await disables;
  expect(wrong).toEqual([]);
  expect(by).toEqual(new Set(['acks']));
  expect(await metric(fleet.controlPlanes[0]?.adminAddress ?? '', 'keyfence_laggards_killed_total')).toBe(0);
});
