import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';

/** A control plane that needs a replica, at a Redis that has none: no write is ever confirmed, each waits a second. */
const AT = { at: 1 };
let fleet: Fleet;

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0 });
  await fleet.addControlPlane({ REDIS_REPLICAS: '1', FENCE_WAIT_MS: '0' });
});
afterAll(() => fleet.stop());

test.concurrent.each([
  ['rootKeys.createRootKey', async () => ({ name: 'n', permissions: ['*'] })],
  [
    'rootKeys.updateRootKey',
    async () => {
      const { rootKeyId } = await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions: ['*'] });
      return { rootKeyId, enabled: false };
    },
  ],
  ['apis.createApi', async () => ({ name: 'n', apiId: 'unconfirmed' })],
  ['keys.createKey', async () => ({ apiId: 'shop' })],
  ['keys.importKeys', async () => ({ apiId: 'shop', keys: [{ sha256: 'ab'.repeat(32) }] })],
])('%s that no replica confirmed is 503', async (operation, input) => {
  const answer = await fleet.admin(operation, await input(), AT);
  expect([answer.status, answer.body.error?.code]).toEqual([503, 'SERVICE_UNAVAILABLE']);
  expect(answer.body.error.message).toMatch(/replicas/);
});

test.concurrent.each(['keys.updateKey', 'keys.deleteKey'])(
  '%s that no replica confirmed stays pending',
  async (operation) => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const { propagation } = await fleet.ok(
      operation,
      { keyId, ...(operation === 'keys.updateKey' ? { enabled: false } : {}) },
      AT,
    );
    expect(propagation).toMatchObject({ state: 'pending', durable: false });
  },
);

test('retries an unconfirmed event, listing it once', async () => {
  const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
  await fleet.ok('keys.updateKey', { keyId, enabled: false }, AT);
  const short = () =>
    metric(fleet.controlPlanes[AT.at]?.adminAddress, 'keyfence_writes_total{result="short"}');
  const before = await short();
  await fleet.until(async () => (await short()) >= before + 2);
  const { events } = await fleet.ok('audit.listEvents', {});
  const requestIds = events.map(({ requestId }: { requestId: string }) => requestId);
  expect(events.some((event: { on: object }) => 'keyId' in event.on && event.on.keyId === keyId)).toBe(true);
  expect(requestIds).toEqual([...new Set(requestIds)]);
});
