import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { SentinelGroup } from '../../../harness/redis-nodes.ts';
import { scratch } from '../../../harness/scratch.ts';
import { Receiver } from './receiver.ts';

const directory = scratch('webhook-failover');
let group: SentinelGroup;
let fleet: Fleet;
let receiver: Receiver;

beforeAll(async () => {
  group = await SentinelGroup.start(directory);
  const env = { REDIS_MODE: 'sentinel', REDIS_URL: group.url, REDIS_REPLICAS: '2', LEASE_MS: '3000' };
  fleet = await Fleet.start({
    ...{ verifiers: 1, redisUrl: group.url },
    env: { ...env, WEBHOOK_NETWORKS: '127.0.0.0/8' },
  });
  receiver = await Receiver.start();
});
afterAll(async () => {
  await receiver?.stop();
  await fleet?.stop();
  await group?.stop();
  rmSync(directory, { recursive: true });
});

test('a failover loses no event of a durable change', async () => {
  await fleet.ok('webhooks.createEndpoint', { url: receiver.url });
  const keyIds: string[] = [];
  for (let i = 0; i < 10; i++) keyIds.push((await fleet.ok('keys.createKey', { apiId: 'shop' })).keyId);
  const durable: string[] = [];
  const old = await group.primary();
  for (const [i, keyId] of keyIds.entries()) {
    if (i === 5) {
      await old.stop();
      await fleet.until(async () => (await group.primary()) !== old);
      await old.restart();
    }
    await fleet.until(async () => {
      const { status, body } = await fleet.admin('keys.updateKey', { keyId, enabled: false });
      if (status === 200 && body.propagation.state === 'complete' && body.propagation.durable) {
        durable.push(keyId);
        return true;
      }
      return false;
    });
  }
  expect(durable).toEqual(keyIds);
  for (const keyId of keyIds) await fleet.until(() => receiver.typesOf(keyId).includes('key.disabled'));
});
