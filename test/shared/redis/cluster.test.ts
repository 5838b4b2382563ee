import { rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { auditStream, idPointer } from '../../../shared/redis/redis-keys.ts';
import { generateKey, hashSecret } from '../../../shared/rules/key-format.ts';
import { envOf, start } from '../../control-plane/clients/cli/keyfence.ts';
import { Receiver } from '../../control-plane/subjects/webhooks/receiver.ts';
import { Fleet } from '../../harness/fleet.ts';
import { metric } from '../../harness/metrics.ts';
import { RedisCluster } from '../../harness/redis-cluster.ts';
import type { RedisNode } from '../../harness/redis-nodes.ts';
import { scratch } from '../../harness/scratch.ts';

const directory = scratch('cluster');
let cluster: RedisCluster;
let fleet: Fleet;

beforeAll(async () => {
  cluster = await RedisCluster.start(directory);
  const env = { REDIS_MODE: 'cluster', USAGE_PERIOD_MS: '100', WEBHOOK_NETWORKS: '127.0.0.0/8' };
  fleet = await Fleet.start({ verifiers: 2, redisUrl: cluster.url, env });
});
afterAll(async () => {
  await fleet?.stop();
  await cluster?.stop();
  rmSync(directory, { recursive: true });
});

/** A new key of which nothing lies on `node`. */
async function keyBesides(node: RedisNode): Promise<{ key: string; keyId: string }> {
  let i = 0;
  while ((await cluster.ownerOf(`api-${i}`)) === node) i++;
  for (;;) {
    const made = await fleet.ok('keys.createKey', { apiId: `api-${i}` });
    if ((await cluster.ownerOfKey(idPointer(made.keyId))) !== node) return made;
  }
}

describe('with a Redis Cluster', () => {
  test('manages and verifies APIs of every node', async () => {
    const owners = new Set<number>();
    for (let i = 0; i < 12; i++) {
      const apiId = `api-${i}`;
      owners.add((await cluster.ownerOf(apiId)).port);
      const { key, keyId } = await fleet.ok('keys.createKey', {
        apiId,
        meta: { long: 'x'.repeat(100) },
        externalId: 'o',
      });
      for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
      const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
      expect(propagation).toMatchObject({ state: 'complete', by: 'acks', verifiers: 2 });
      for (const at of [0, 1]) expect((await fleet.verify(key, { at })).body.code).toBe('DISABLED');
      expect((await fleet.ok('apis.listKeys', { apiId, externalId: 'o' })).keys[0]).toMatchObject({
        keyId,
        enabled: false,
      });
    }
    expect(owners.size).toBe(3);
    expect((await fleet.ok('apis.listApis')).apis).toHaveLength(12);
  });

  test('tells webhooks of keys on every node', async () => {
    const receiver = await Receiver.start();
    await fleet.ok('webhooks.createEndpoint', { url: receiver.url });
    const keyIds: string[] = [];
    for (let i = 0; i < 6; i++) {
      const expires = Date.now() + 4000;
      const { keyId } = await fleet.ok('keys.createKey', { apiId: `api-${i}`, expires });
      await fleet.ok('keys.updateKey', { keyId, name: 'Ada' });
      keyIds.push(keyId);
    }
    // On a slow machine nobody sees it before it has expired.
    const typesOf = (keyId: string) => receiver.typesOf(keyId).filter((type) => type !== 'key.expiring');
    const types = ['key.created', 'key.expired', 'key.updated'];
    for (const keyId of keyIds)
      await fleet.until(() => JSON.stringify(typesOf(keyId).sort()) === JSON.stringify(types));
    await receiver.stop();
  });

  test('a write depends only on its own node', async () => {
    const [first, second] = await Promise.all(
      ['api-0', 'api-1', 'api-2', 'api-3', 'api-4', 'api-5'].map(async (apiId) => ({
        apiId,
        node: await cluster.ownerOf(apiId),
      })),
    ).then((all) => [all[0], all.find(({ node }) => node.port !== all[0]?.node.port)]);
    if (!first || !second) throw new Error('all APIs lie on one node');
    const durable = async (apiId: string) => {
      const { keyId } = await fleet.ok('keys.createKey', { apiId });
      return (await fleet.ok('keys.updateKey', { keyId, name: 'x' })).propagation.durable;
    };
    await second.node.command('CONFIG', 'SET', 'appendfsync', 'everysec');
    expect([await durable(first.apiId), await durable(second.apiId)]).toEqual([true, false]);
    const { adminAddress } = fleet.controlPlanes[0] ?? {};
    await fleet.until(async () => (await metric(adminAddress, 'keyfence_durable')) === 0);
    await second.node.command('CONFIG', 'SET', 'appendfsync', 'always');
    expect(await durable(second.apiId)).toBe(true);
  });

  test('the doctor names a node that stops all shards', async () => {
    const shards = async () => {
      const { stdout } = await start(['doctor', '--json'], envOf(fleet, { REDIS_MODE: 'cluster' })).ended;
      const { findings } = JSON.parse(stdout) as { findings: { check: string }[] };
      return findings.find(({ check }) => check === 'shards');
    };
    expect(await shards()).toEqual({ check: 'shards', found: 'cluster-require-full-coverage no' });
    const [node] = cluster.nodes;
    await node?.command('CONFIG', 'SET', 'cluster-require-full-coverage', 'yes');
    expect(await shards()).toEqual({
      check: 'shards',
      found: expect.stringMatching(/^cluster-require-full-coverage (?:yes and no|no and yes)$/),
      change: expect.stringContaining('`CONFIG SET cluster-require-full-coverage no`'),
    });
    await node?.command('CONFIG', 'SET', 'cluster-require-full-coverage', 'no');
  });

  test('an API goes on when its slot moves', async () => {
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'mover' });
    for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
    const source = await cluster.ownerOf('mover');
    const target = cluster.nodes.find((node) => node !== source);
    if (!target) throw new Error('no other node');
    await cluster.moveSlot('mover', target);
    expect((await cluster.ownerOf('mover')).port).toBe(target.port);

    await fleet.until(async () => {
      const answer = await fleet.admin('keys.updateKey', { keyId, enabled: false });
      return answer.status === 200 && answer.body.propagation.state === 'complete';
    });
    for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('DISABLED');
    await fleet.until(
      async () =>
        (await fleet.admin('keys.updateKey', { keyId, enabled: true })).body.propagation?.by === 'acks',
    );
    for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
  });

  test('an import reaches the pointers on every node', async () => {
    const secrets = Array.from({ length: 60 }, (_, i) => generateKey(16, `c${i}`));
    const keys = secrets.map((secret) => ({ sha256: hashSecret(secret), foreign: false }));
    for (const result of ['created', 'exists']) {
      const { results } = await fleet.ok('keys.importKeys', { apiId: 'api-1', keys });
      expect(new Set(results.map((each: { result: string }) => each.result))).toEqual(new Set([result]));
    }
    for (const secret of secrets) expect(await fleet.verdict(secret)).toBe('VALID');
  });

  test('a killed node takes only its own APIs away', async () => {
    const owner = await cluster.ownerOf('api-0');
    const lost = await fleet.ok('keys.createKey', { apiId: 'api-0' });
    const kept = await keyBesides(owner);
    for (const { key } of [lost, kept]) expect(await fleet.verdict(key)).toBe('VALID');
    const disable = async (keyId: string) =>
      (await fleet.admin('keys.updateKey', { keyId, enabled: false })).status;
    await owner.stop();
    await fleet.until(async () => (await fleet.verifyOnce(lost.key)).status === 503);
    expect(await disable(lost.keyId)).toBe(503);
    await fleet.until(async () => (await disable(kept.keyId)) === 200);
    expect(await fleet.verdict(kept.key)).toBe('DISABLED');
    await owner.restart();
    await fleet.until(async () => (await disable(lost.keyId)) === 200);
    expect(await fleet.verdict(lost.key)).toBe('DISABLED');
  });

  test('usage of keys on every node is reported', async () => {
    const dropped = async () => {
      const counts = fleet.verifiers.map(({ adminAddress }) =>
        metric(adminAddress, 'keyfence_usage_dropped_total'),
      );
      return (await Promise.all(counts)).reduce((a, b) => a + b);
    };
    const isReported = async (apiId: string) => {
      const before = await dropped();
      const { key, keyId } = await fleet.ok('keys.createKey', { apiId });
      for (const at of [0, 1]) expect(await fleet.verdict(key, { at })).toBe('VALID');
      const count = async () =>
        (await fleet.ok('keys.getVerifications', { keyId })).verifications.at(-1).success;
      await fleet.until(async () => (await count()) === 2 || (await dropped()) > before);
      return (await count()) === 2;
    };
    // What Redis did not take in time is dropped, lest it count twice: then another key shows it.
    for (let i = 0; i < 12; i++) await fleet.until(() => isReported(`api-${i}`));
  });

  test('a disable does not need the audit node', async () => {
    const away = await cluster.ownerOfKey(auditStream('done'));
    const { keyId, key } = await keyBesides(away);
    expect(await fleet.verdict(key)).toBe('VALID');
    await away.stop();
    await fleet.until(async () => {
      const { status, body } = await fleet.admin('keys.updateKey', { keyId, enabled: false });
      return status === 200 && body.propagation.state === 'complete';
    });
    expect(await fleet.verdict(key)).toBe('DISABLED');
    await away.restart();
    await fleet.until(async () => {
      const { status, body } = await fleet.admin('audit.listEvents', { keyId, operation: 'keys.updateKey' });
      return status === 200 && body.events.some(({ outcome }: { outcome: string }) => outcome === 'OK');
    });
  });
});
