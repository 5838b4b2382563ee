import { Webhook } from 'standardwebhooks';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';
import { Receiver } from './receiver.ts';

let fleet: Fleet;
const receivers: { receiver: Receiver; endpointId: string }[] = [];

const env = { WEBHOOK_NETWORKS: '127.0.0.0/8', WEBHOOK_QUEUE_MAX: '100' };
beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 0, env });
});
afterEach(async () => {
  for (const { receiver, endpointId } of receivers.splice(0)) {
    await fleet.admin('webhooks.deleteEndpoint', { endpointId });
    await receiver.stop();
  }
});
afterAll(() => fleet.stop());

async function newReceiver(fields: object = {}) {
  const receiver = await Receiver.start();
  const { endpointId, secret } = await fleet.ok('webhooks.createEndpoint', { url: receiver.url, ...fields });
  receiver.secret = secret;
  receivers.push({ receiver, endpointId });
  return { receiver, endpointId: endpointId as string };
}
const newKey = async (): Promise<string> => (await fleet.ok('keys.createKey', { apiId: 'shop' })).keyId;
const rename = (keyId: string, name: string) => fleet.ok('keys.updateKey', { keyId, name });
const stateOf = (endpointId: string) => fleet.ok('webhooks.getEndpoint', { endpointId });
const adminAddress = () => fleet.controlPlanes[0]?.adminAddress;
const attemptsAt = async (endpointId: string, dead = 'false') =>
  (await fleet.ok('webhooks.listDeliveries', { endpointId, dead })).deliveries;

test('retries an event, and holds up only its key', async () => {
  const { receiver, endpointId } = await newReceiver();
  const [a, b] = [await newKey(), await newKey()];
  await fleet.until(() => receiver.received.length === 2);
  receiver.answers = [{ status: 500, body: 'no room' }, { status: 204 }];
  await rename(a, 'a1');
  await fleet.until(async () => (await stateOf(endpointId)).failures === 1);
  await rename(a, 'a2');
  await rename(b, 'b1');
  await fleet.until(() => receiver.received.length === 6);
  const names = receiver.received.slice(2).map(({ data }) => data.after.name);
  expect(names).toEqual(['a1', 'b1', 'a1', 'a2']);
  const [first, , second] = receiver.received.slice(2);
  expect(first?.id).toBe(second?.id);
  expect(receiver.unsigned).toBe(0);
  await fleet.until(async () => (await stateOf(endpointId)).waiting === 0);
  const attempts = await attemptsAt(endpointId);
  expect(attempts.map((each: { attempt: number; result: string }) => [each.attempt, each.result])).toEqual([
    ...[
      [1, 'delivered'],
      [2, 'delivered'],
      [1, 'delivered'],
      [1, 'failed'],
      [1, 'delivered'],
      [1, 'delivered'],
    ],
  ]);
  const failed = attempts.find((each: { result: string }) => each.result === 'failed');
  expect(failed).toMatchObject({ status: 500, response: 'no room', eventId: first?.id });
  expect(failed.nextAt).toBeGreaterThan(failed.time);
  expect(failed.event).toMatchObject({ type: 'key.updated', data: { keyId: a } });
});

test('an endpoint that does not answer delays no other, and no change of a key', async () => {
  const slow = await newReceiver();
  const { receiver } = await newReceiver();
  slow.receiver.answers = ['hang'];
  for (let i = 0; i < 20; i++) await newKey();
  await fleet.until(() => receiver.received.length === 20);
  expect(slow.receiver.received).toEqual([]);
  // Of what it did not answer, no more than its share is under way.
  expect((await stateOf(slow.endpointId)).waiting).toBe(20);
});

test('a queue that is full loses its oldest events, and says how many', async () => {
  const before = await metric(adminAddress(), 'keyfence_webhook_events_dropped_total');
  const { receiver, endpointId } = await newReceiver();
  await receiver.stop();
  const keyIds = await Promise.all(Array.from({ length: 130 }, newKey));
  await fleet.until(async () => (await stateOf(endpointId)).dropped === 30);
  expect(await stateOf(endpointId)).toMatchObject({ waiting: 100 });
  expect((await metric(adminAddress(), 'keyfence_webhook_events_dropped_total')) - before).toBe(30);
  // A changed URL is tried at once, however long the endpoint was failing.
  await receiver.listen();
  await fleet.ok('webhooks.updateEndpoint', { endpointId, url: `${receiver.url}?again` });
  await fleet.until(async () => (await stateOf(endpointId)).waiting === 0);
  const ids = new Set(receiver.received.map(({ data }) => data.keyId));
  expect(ids.size).toBeGreaterThanOrEqual(100);
  expect(keyIds.filter((keyId) => ids.has(keyId)).length).toBe(ids.size);
});

test('counts failures on after a change of the sender', async () => {
  const { receiver, endpointId } = await newReceiver();
  receiver.answers = [{ status: 500 }];
  for (let failures = 1; failures <= 5; failures++) {
    await newKey();
    await fleet.until(async () => (await stateOf(endpointId)).failures === failures);
  }
  await fleet.controlPlanes.shift()?.stop();
  await fleet.addControlPlane(env);
  await fleet.until(async () => (await stateOf(endpointId)).failures === 6);
  // One attempt, as the sender before would have made it, and not one for each event.
  expect(receiver.received).toHaveLength(6);
  expect((await stateOf(endpointId)).state).toBe('failing');
});

test('disables an endpoint that answers "gone"', async () => {
  const { receiver, endpointId } = await newReceiver();
  const { receiver: other } = await newReceiver({ events: ['webhook.disabled'] });
  receiver.answers = [{ status: 410 }, { status: 204 }];
  const first = await newKey();
  await fleet.until(async () => (await stateOf(endpointId)).state === 'disabled');
  await newKey();
  // Whoever looks is told, and how many events pass.
  const event = { operation: 'rules.disableEndpoint', after: { enabled: false, status: 410 } };
  await fleet.until(() => other.received.length === 1);
  expect(other.received).toMatchObject([{ type: 'webhook.disabled', data: { endpointId, ...event } }]);
  await fleet.until(async () => (await stateOf(endpointId)).passed > 0);
  expect(await stateOf(endpointId)).toMatchObject({ goneAt: expect.any(Number) });
  expect((await fleet.ok('audit.listEvents')).events).toContainEqual(
    expect.objectContaining({ ...event, on: { endpointId } }),
  );
  expect((await fleet.ok('fleet.listFindings')).findings).toContainEqual(
    expect.objectContaining({ check: 'webhooks', result: expect.stringContaining(endpointId) }),
  );
  await fleet.until(async () => (await metric(adminAddress(), 'keyfence_webhook_endpoints_gone')) === 1);
  await fleet.ok('webhooks.updateEndpoint', { endpointId, enabled: true });
  await fleet.until(() => receiver.received.length >= 2);
  expect(await stateOf(endpointId)).not.toHaveProperty('goneAt');
  expect(receiver.typesOf(first)).toEqual(['key.created']);
  expect(new Set(receiver.received.map(({ data }) => data.keyId))).toEqual(new Set([first]));
});

test('a redirect is not followed', async () => {
  const { receiver: elsewhere } = await newReceiver({ events: ['webhook.test'] });
  const { receiver, endpointId } = await newReceiver();
  receiver.answers = [{ status: 307, headers: { location: elsewhere.url } }];
  expect(await fleet.ok('webhooks.test', { endpointId })).toMatchObject({ delivered: false, status: 307 });
  expect(elsewhere.received).toEqual([]);
});

test('a test event says what came back', async () => {
  const { receiver, endpointId } = await newReceiver();
  receiver.answers = [{ status: 200, body: `hello ${'x'.repeat(100_000)}` }];
  const result = await fleet.ok('webhooks.test', { endpointId });
  expect(result).toMatchObject({ delivered: true, status: 200 });
  expect(result.response).toHaveLength(1000);
  expect(receiver.received).toMatchObject([
    { type: 'webhook.test', data: { endpointId }, id: result.eventId },
  ]);
  expect(receiver.unsigned).toBe(0);
  await receiver.stop();
  const failed = await fleet.ok('webhooks.test', { endpointId });
  expect(failed).toMatchObject({ delivered: false, error: expect.stringContaining('ECONNREFUSED') });
});

test('signs with both secrets after a rotation', async () => {
  const { receiver, endpointId } = await newReceiver();
  const { secret, formerSecretEndsAt } = await fleet.ok('webhooks.rotateSecret', { endpointId });
  expect(formerSecretEndsAt - Date.now()).toBeGreaterThan(86_000_000);
  expect(await stateOf(endpointId)).toMatchObject({ formerSecretEndsAt });
  expect(secret).not.toBe(receiver.secret);
  await fleet.ok('webhooks.test', { endpointId });
  const [event] = receiver.received;
  expect(receiver.unsigned).toBe(0);
  new Webhook(secret).verify(event?.text ?? '', event?.headers as Record<string, string>);
});

test('repeats a delivery under the id of its event', async () => {
  const { receiver, endpointId } = await newReceiver();
  await newKey();
  await fleet.until(async () => (await attemptsAt(endpointId)).length === 1);
  const [{ deliveryId, eventId }] = await attemptsAt(endpointId);
  await fleet.ok('webhooks.redeliver', { endpointId, deliveryId });
  await fleet.until(() => receiver.received.length === 2);
  expect(receiver.received.map(({ id }) => id)).toEqual([eventId, eventId]);
  const unknown = await fleet.admin('webhooks.redeliver', { endpointId, deliveryId: 'a1-0' });
  expect(unknown.status).toBe(404);
});

/** An endpoint whose attempts failed until it is paused for seconds, and which would answer now. */
async function failing() {
  const { receiver, endpointId } = await newReceiver();
  receiver.answers = [{ status: 500 }];
  for (let failures = 1; failures <= 6; failures++) {
    await newKey();
    await fleet.until(async () => (await stateOf(endpointId)).failures >= failures);
  }
  const { state, pausedUntil } = await stateOf(endpointId);
  expect(state).toBe('failing');
  const { length } = receiver.received;
  receiver.answers = [{ status: 204 }];
  return { receiver, endpointId, length, pausedUntil };
}

test('a good test ends the pause of an endpoint', async () => {
  const { receiver, endpointId, length, pausedUntil } = await failing();
  expect(await fleet.ok('webhooks.test', { endpointId })).toMatchObject({ delivered: true });
  await fleet.until(async () => (await stateOf(endpointId)).waiting === 0);
  expect(await stateOf(endpointId)).toMatchObject({ state: 'active', failures: 0 });
  expect(receiver.received.length).toBeGreaterThan(length + 1);
  expect(Date.now()).toBeLessThan(pausedUntil);
});

test('what is sent again goes out during a pause', async () => {
  const { receiver, endpointId, length, pausedUntil } = await failing();
  const [{ deliveryId, eventId }] = await attemptsAt(endpointId);
  await fleet.ok('webhooks.redeliver', { endpointId, deliveryId });
  await fleet.until(async () => (await stateOf(endpointId)).waiting === 0);
  // It waited still, so there is one of it.
  expect(receiver.received.slice(length).filter(({ id }) => id === eventId)).toHaveLength(1);
  expect(Date.now()).toBeLessThan(pausedUntil);
});

test('deliveries are listed page by page', async () => {
  const { endpointId } = await newReceiver();
  for (let i = 0; i < 5; i++) await newKey();
  await fleet.until(async () => (await attemptsAt(endpointId)).length === 5);
  const all = await attemptsAt(endpointId);
  const listed: object[] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined; ) {
    const input = { endpointId, limit: '2', ...(cursor ? { cursor } : {}) };
    const page = await fleet.ok('webhooks.listDeliveries', input);
    listed.push(...page.deliveries);
    cursor = page.cursor;
  }
  expect(listed).toEqual(all);
});

test('what waits outlives restarts', async () => {
  const { receiver, endpointId } = await newReceiver();
  await receiver.stop();
  const keyId = await newKey();
  await fleet.until(async () => (await stateOf(endpointId)).failures > 0);
  await fleet.controlPlanes.shift()?.stop();
  await fleet.redis.stop();
  await fleet.startRedis();
  await receiver.listen();
  await fleet.addControlPlane(env);
  await fleet.until(() => receiver.typesOf(keyId).length === 1);
});

test('refuses wrong endpoints by rule and field', async () => {
  const refusal = async (input: object) => {
    const { status, body } = await fleet.admin('webhooks.createEndpoint', input);
    return [status, body.error?.message];
  };
  expect(await refusal({ url: 'ftp://example.com' })).toEqual([
    400,
    expect.stringContaining('url: must be a URL that begins with https://'),
  ]);
  expect(await refusal({ url: 'https://ada:secret@example.com' })).toEqual([
    400,
    expect.stringContaining('url: must not have a user or password'),
  ]);
  expect(await refusal({ url: 'https://example.com', events: ['key.made'] })).toEqual([
    400,
    expect.stringContaining('events.0'),
  ]);
  expect((await fleet.admin('webhooks.getEndpoint', { endpointId: 'endpoint_x' })).status).toBe(404);
});
