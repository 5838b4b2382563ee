import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { auditStream } from '../../../../shared/redis/redis-keys.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { eventually } from '../../../harness/waiting.ts';
import { Receiver } from './receiver.ts';

let fleet: Fleet;
let receiver: Receiver;
let redis: Redis;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env: { WEBHOOK_NETWORKS: '127.0.0.0/8' } });
  receiver = await Receiver.start();
  redis = new Redis(fleet.redisUrl);
});
afterAll(async () => {
  redis.disconnect();
  await receiver.stop();
  await fleet.stop();
});

/** How far the sender is in the audit log, and the number of events that it has read and not settled. */
async function group(): Promise<{ at: unknown; pending: unknown }> {
  const [flat = []] = (await redis.xinfo('GROUPS', auditStream('done'))) as unknown[][];
  const fieldOf = (name: string) => flat[flat.indexOf(name) + 1];
  return { at: fieldOf('last-delivered-id'), pending: fieldOf('pending') };
}

async function latest(): Promise<string | undefined> {
  const [newest] = await redis.xrevrange(auditStream('done'), '+', '-', 'COUNT', 1);
  return newest?.[0];
}

const isAtLatest = async () => (await group()).at === (await latest()) && (await group()).pending === 0;
const reads = async () =>
  Number(/cmdstat_xreadgroup:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1]);

test('passes over events before the first endpoint', async () => {
  await fleet.ok('keys.createKey', { apiId: 'shop' });
  await eventually(isAtLatest);
  const before = await reads();
  for (let i = 0; i < 20; i++) await fleet.ok('keys.createKey', { apiId: 'shop' });
  await eventually(isAtLatest);
  expect(await reads()).toBe(before);
  // The sender has not passed over this one yet, and the endpoint does not get it either.
  await fleet.ok('keys.createKey', { apiId: 'shop' });

  ({ secret: receiver.secret } = await fleet.ok('webhooks.createEndpoint', { url: receiver.url }));
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  await fleet.until(() => receiver.typesOf(keyId).length === 2, 'the events of the key were awaited');
  expect(receiver.typesOf(keyId)).toEqual(['key.created', 'key.disabled']);
  expect(receiver.received.filter(({ type }) => type === 'key.created')).toHaveLength(1);
});

test('reads events that it may not pass over', async () => {
  const { endpointId } = (await fleet.ok('webhooks.listEndpoints')).endpoints[0];
  await fleet.ok('webhooks.deleteEndpoint', { endpointId });
  await redis.acl('SETUSER', 'default', '-xgroup|setid');
  try {
    await fleet.ok('keys.createKey', { apiId: 'shop' });
    await eventually(isAtLatest);
    const before = await reads();
    // The read that takes the first of them may have begun before.
    await eventually(async () => {
      await fleet.ok('keys.createKey', { apiId: 'shop' });
      await eventually(isAtLatest);
      return (await reads()) > before;
    });
  } finally {
    await redis.acl('SETUSER', 'default', '+xgroup|setid');
  }
});
