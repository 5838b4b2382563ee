import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Write } from '../../control-plane/core/change-log-port.ts';
import { RedisChangeLog } from '../../control-plane/redis/change-log.ts';
import { DurableWriter } from '../../control-plane/redis/durable-writer.ts';
import type { StoredFields } from '../../shared/contract/key-record.ts';
import { systemClock } from '../../shared/lang/clock.ts';
import { createLogger } from '../../shared/process/log.ts';
import { RedisNodes } from '../../shared/redis/redis.ts';
import { apiKeys } from '../../shared/redis/redis-keys.ts';
import { Balancer, noBalancer } from '../harness/balancer.ts';
import { ROOT } from '../harness/built.ts';
import { redisConfig } from '../harness/config.ts';
import { earlierCode, hasEarlier } from '../harness/earlier.ts';
import { Fleet, ROOT_KEY } from '../harness/fleet.ts';
import { Load } from '../harness/load.ts';
import { Process } from '../harness/processes.ts';
import { PATIENT } from '../harness/waiting.ts';

/**
 * Processes of the release before the gate, as they are in the history, beside those of now. A field that neither knows
 * stands for what a later release adds: the write says that it needs protocol 2.
 */
const UNKNOWN = { zz: 'a limit that nobody of before obeys' } as StoredFields;
/** Where no look-up may come too late, and no lease end, because the machine is slow. */
const UNHURRIED = { LOOKUP_WAIT_MS: '10000', LEASE_MS: '60000' };
const reason = hasEarlier ? '' : ' (skipped: the history does not reach back to it)';

describe.skipIf(!hasEarlier)(`the release before the gate${reason}`, () => {
  const directory = mkdtempSync(join(tmpdir(), 'keyfence-gate-'));
  let earlier = '';
  beforeAll(() => {
    earlier = earlierCode(directory);
  });
  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  let fleet: Fleet;
  let redis: Redis;
  let nodes: RedisNodes;
  let log: RedisChangeLog;
  const processes: Process[] = [];
  beforeEach(async () => {
    fleet = await Fleet.start({ verifiers: 0, env: { LEASE_MS: '60000' } });
    redis = new Redis(fleet.redisUrl);
    const config = redisConfig({ REDIS_URL: fleet.redisUrl, ...PATIENT });
    nodes = new RedisNodes(config, systemClock, createLogger('control-plane', 'silent'));
    log = new RedisChangeLog(nodes, new DurableWriter(nodes, 0), 0, () => systemClock.wallMs());
  });
  afterEach(async () => {
    await Promise.all(processes.splice(0).map((process) => process.stop('SIGKILL')));
    await nodes.close();
    redis.disconnect();
    await fleet.stop();
  });

  async function start(
    file: 'control-plane/main.ts' | 'verifier/main.ts',
    root: string,
    env = {},
  ): Promise<Process> {
    const own = file === 'verifier/main.ts' ? {} : { ROOT_KEY };
    const process = new Process(file, { REDIS_URL: fleet.redisUrl, ...PATIENT, ...own, ...env }, root);
    processes.push(process);
    await process.start();
    await fleet.until(async () => (await fleet.get(`${process.adminAddress}/readyz`)).status === 200);
    return process;
  }

  const ask = async (verifier: Process, key: string): Promise<string> => {
    const { status, body } = await fleet.post(`${verifier.address}/v1/keys.verifyKey`, { key });
    return status === 200 ? body.code : String(status);
  };
  /** Its verdict; while it has none, as where a slow machine let its lease end, it is asked again. */
  const judged = async (verifier: Process, key: string): Promise<string> => {
    let answer = '';
    await fleet.until(async () => {
      answer = await ask(verifier, key);
      return answer !== '503';
    });
    return answer;
  };
  const said = (verifier: Process, key: string, what: string) =>
    fleet.until(async () => (await ask(verifier, key)) === what, `it does not say ${what}`);
  const admin = (controlPlane: Process, operation: string, body: object) =>
    fleet.post(`${controlPlane.address}/v1/${operation}`, body, { authorization: `Bearer ${ROOT_KEY}` });
  const created = (apiId: string): Promise<{ key: string; keyId: string }> =>
    fleet.ok('keys.createKey', { apiId });
  const limited = (keyId: string): Write => ({
    ...{ apiId: 'shop', operation: 'update', keyId, fields: UNKNOWN },
    needs: 2,
  });
  const membersOf = (apiId: string) => redis.zrange(apiKeys(apiId).members, '0', '-1');

  /** Asks again and again until `enough`, each time after an act; every answer. */
  async function answers(verifier: Process, key: string, enough: () => boolean, act?: () => Promise<void>) {
    const heard = new Set<string>();
    await fleet.until(async () => {
      await act?.();
      heard.add(await ask(verifier, key));
      return enough();
    });
    return [...heard].sort();
  }

  test('a verifier of it that follows the API holds off what it does not know, and none that comes later says VALID', async () => {
    const old = await start('verifier/main.ts', earlier);
    const { key, keyId } = await created('shop');
    const other = await created('other');
    await said(old, key, 'VALID');
    await said(old, other.key, 'VALID');
    const names = await membersOf('shop');
    expect(await log.write(limited(keyId))).toEqual({ status: 'TOO_OLD', needs: 2, followers: 1, names });
    expect(await redis.hget(`kf:{shop}:k:${keyId}`, 'zz')).toBeNull();
    expect(await judged(old, key)).toBe('VALID');

    await old.stop('SIGTERM');
    expect(await membersOf('shop')).toEqual([]);
    expect(await log.write(limited(keyId))).toMatchObject({ status: 'OK', sequence: 1 });
    await old.start();
    // It finds the key, tries to register, hears of changes, and asks others meanwhile.
    let attempts = 0;
    const tries = () => old.output.split('not a valid float').length - 1;
    const heard = await answers(
      old,
      key,
      () => ++attempts >= 8 && tries() >= 1,
      async () => {
        await log.write({ ...limited(keyId), fields: { n: `change ${attempts}` } });
        await said(old, other.key, 'VALID');
      },
    );
    expect(heard).toEqual(['503']);
    expect(await membersOf('shop')).toEqual([]);

    // The new one beside it knows the key, and the next change is complete without a fence.
    const now = await start('verifier/main.ts', ROOT);
    await said(now, key, 'VALID');
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
    expect(propagation).toMatchObject({ state: 'complete', by: 'acks', verifiers: 1 });
    expect(await judged(now, key)).toBe('DISABLED');
    expect(await ask(old, key)).toBe('503');
  });

  test('a verifier of it whose name somebody removed, so that the gate does not see it, forgets everything at the first such change', async () => {
    const old = await start('verifier/main.ts', earlier);
    const { key, keyId } = await created('shop');
    await said(old, key, 'VALID');
    const [name = ''] = await membersOf('shop');
    await redis.zrem(apiKeys('shop').members, name);
    expect(await log.write(limited(keyId))).toMatchObject({ status: 'OK' });
    await said(old, key, '503');
    let asked = 0;
    expect(await answers(old, key, () => ++asked >= 8)).toEqual(['503']);
    expect(await membersOf('shop')).toEqual([]);
  });

  test('a verifier of now beside a control plane of it: everything is as it was', async () => {
    const oldControlPlane = await start('control-plane/main.ts', earlier);
    const now = await start('verifier/main.ts', ROOT);
    const { body } = await admin(oldControlPlane, 'keys.createKey', { apiId: 'shop', name: 'Ada' });
    await said(now, body.key, 'VALID');
    const disabled = await admin(oldControlPlane, 'keys.updateKey', { keyId: body.keyId, enabled: false });
    expect(disabled.body.propagation).toMatchObject({ state: 'complete', by: 'acks', verifiers: 1 });
    expect(await judged(now, body.key)).toBe('DISABLED');
    expect((await admin(oldControlPlane, 'keys.deleteKey', { keyId: body.keyId })).status).toBe(200);
    expect(await judged(now, body.key)).toBe('NOT_FOUND');
  });

  test('a control plane of it writes nothing in an API that needs more, and says so', async () => {
    const oldControlPlane = await start('control-plane/main.ts', earlier);
    const now = await start('verifier/main.ts', ROOT);
    const { key, keyId } = await created('shop');
    await said(now, key, 'VALID');
    await log.write(limited(keyId));
    const record = await redis.hgetall(`kf:{shop}:k:${keyId}`);
    for (const [operation, body] of [
      ['keys.updateKey', { keyId, enabled: false }],
      ['keys.updateKey', { keyId, name: null }],
      ['keys.deleteKey', { keyId }],
      ['apis.deleteApi', { apiId: 'shop' }],
    ] as const) {
      // It knows no such error of Redis.
      const { status } = await admin(oldControlPlane, operation, body);
      expect([operation, status]).toEqual([operation, 500]);
    }
    expect(await redis.hgetall(`kf:{shop}:k:${keyId}`)).toEqual(record);
    expect(await redis.hget(apiKeys('shop').head, 's')).toBe('2:1');
    expect(await judged(now, key)).toBe('VALID');
    expect((await fleet.ok('keys.updateKey', { keyId, enabled: false })).propagation.state).toBe('complete');
    expect(await judged(now, key)).toBe('DISABLED');
  });

  describe.skipIf(noBalancer)(`behind a balancer${noBalancer}`, () => {
    test('an upgrade in the documented order, verifiers and then control planes, loses no request', async () => {
      await fleet.controlPlanes.pop()?.stop(); // which is of now
      const verifiers = await Promise.all([0, 1].map(() => start('verifier/main.ts', earlier, UNHURRIED)));
      const controlPlanes = await Promise.all(
        [0, 1].map(() => start('control-plane/main.ts', earlier, UNHURRIED)),
      );
      const front = await Balancer.start(directory, verifiers);
      const back = await Balancer.start(directory, controlPlanes);
      try {
        const headers = { authorization: `Bearer ${ROOT_KEY}` };
        let [key, keyId] = ['', ''];
        await fleet.until(async () => {
          // A control plane that has just started on a busy machine may ask to come again.
          const answer = await fleet.post(`${back.address}/v1/keys.createKey`, { apiId: 'shop' }, headers);
          if (answer.status === 200) ({ key, keyId } = answer.body);
          return answer.status === 200;
        });
        for (const verifier of verifiers) await said(verifier, key, 'VALID');
        const verifying = () => ({ path: '/v1/keys.verifyKey', body: { key } });
        const renaming = () => ({ path: '/v1/keys.updateKey', body: { keyId, name: 'x' }, headers });
        const asked = new Load(front.address, verifying, { callers: 4 });
        const anew = new Load(front.address, verifying, { callers: 2, keepAlive: false });
        const changed = new Load(back.address, renaming, { callers: 2 });
        for (const [tier, balancer] of [
          [verifiers, front],
          [controlPlanes, back],
        ] as const) {
          for (const process of tier) {
            // Whoever of the fleet is left of the old release, the feature is refused.
            if (tier === verifiers)
              expect(await log.write(limited(keyId))).toMatchObject({ status: 'TOO_OLD' });
            await asked.more(50);
            expect(await process.stop('SIGTERM')).toBe(0);
            process.root = ROOT;
            await process.start();
            await balancer.untilUp(tier.length);
          }
        }
        expect(await log.write(limited(keyId))).toMatchObject({ status: 'OK' });
        for (const load of [asked, anew, changed]) await load.more(20);
        await Promise.all([asked, anew, changed].map((load) => load.stop()));
        expect(asked.outcomes).toEqual({ VALID: expect.any(Number) });
        expect(anew.outcomes).toEqual({ VALID: expect.any(Number) });
        expect(changed.outcomes).toEqual({ 200: expect.any(Number) });
      } finally {
        await Promise.all([front, back].map((balancer) => balancer.stop()));
      }
    });
  });
});
