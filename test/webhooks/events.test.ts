import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../harness/fleet.ts';
import { Receiver } from './receiver.ts';

let fleet: Fleet;
let receiver: Receiver;
let endpointId: string;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 1, env: { WEBHOOK_NETWORKS: '127.0.0.0/8' } });
  receiver = await Receiver.start();
  const created = await fleet.ok('webhooks.createEndpoint', { url: receiver.url });
  ({ endpointId, secret: receiver.secret } = created);
});
afterAll(async () => {
  await receiver.stop();
  await fleet.stop();
});

const gets = (id: string, types: readonly string[]) =>
  fleet.until(
    () => JSON.stringify(receiver.typesOf(id)) === JSON.stringify(types),
    `${id} got ${receiver.typesOf(id)}`,
  );

test('the life of a key is told in order, signed, and a disable with its receipt', async () => {
  const { keyId, key } = await fleet.ok('keys.createKey', { apiId: 'shop', name: 'Ada' });
  await fleet.ok('keys.updateKey', { keyId, name: 'Grace' });
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  await fleet.ok('keys.updateKey', { keyId, enabled: true });
  await fleet.ok('keys.deleteKey', { keyId });
  const types = ['key.created', 'key.updated', 'key.disabled', 'key.enabled', 'key.deleted'];
  await gets(keyId, types);
  expect(receiver.unsigned).toBe(0);
  const disabled = receiver.received.find(({ type, data }) => type === 'key.disabled' && data.keyId === keyId);
  expect(disabled?.data).toMatchObject({
    apiId: 'shop',
    operation: 'keys.updateKey',
    outcome: 'OK',
    before: { enabled: true },
    after: { enabled: false },
    propagation: { state: 'complete', durable: true, verifiers: 0 },
  });
  expect(receiver.received.every(({ text }) => !text.includes(key))).toBe(true);
});
