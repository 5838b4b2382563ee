import { Value } from 'typebox/value';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { EVENT_TYPES } from '../../../../control-plane/core/schema/event-types.ts';
import type { Operation } from '../../../../control-plane/core/serve/operation.ts';
import { operations } from '../../../../control-plane/operations.ts';
import { operationsV2 } from '../../../../control-plane/unkey-v2/index.ts';
import { Fleet } from '../../../harness/fleet.ts';
import { Receiver } from './receiver.ts';

let fleet: Fleet;
let receiver: Receiver;
/** Every secret that was made, none of which may be in any event. */
const secrets: string[] = [];

beforeAll(async () => {
  fleet = await Fleet.start({ verifiers: 1, env: { WEBHOOK_NETWORKS: '127.0.0.0/8' } });
  receiver = await Receiver.start();
  ({ secret: receiver.secret } = await fleet.ok('webhooks.createEndpoint', { url: receiver.url }));
});
afterAll(async () => {
  await receiver.stop();
  await fleet.stop();
});

const receives = (id: string, types: readonly string[]) =>
  fleet.until(
    () => JSON.stringify(receiver.typesOf(id)) === JSON.stringify(types),
    `${id}: ${types} was awaited`,
  );
const lastOf = (type: string) => receiver.received.findLast((event) => event.type === type);

async function newKey(fields: object = {}): Promise<{ keyId: string; key: string }> {
  const created = await fleet.ok('keys.createKey', { apiId: 'shop', ...fields });
  secrets.push(created.key);
  return created;
}

test('orders the events of a key, with its receipt', async () => {
  const { keyId, key } = await newKey({ name: 'Ada' });
  expect(await fleet.verdict(key)).toBe('VALID');
  await fleet.ok('keys.updateKey', { keyId, name: 'Grace' });
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  await fleet.ok('keys.updateKey', { keyId, enabled: true });
  await fleet.ok('keys.deleteKey', { keyId });
  // Said again, it is no other event.
  await fleet.ok('keys.deleteKey', { keyId });
  await receives(keyId, ['key.created', 'key.updated', 'key.disabled', 'key.enabled', 'key.deleted']);
  expect(lastOf('key.disabled')?.data).toMatchObject({
    apiId: 'shop',
    operation: 'keys.updateKey',
    outcome: 'OK',
    before: { enabled: true },
    after: { enabled: false },
    propagation: { state: 'complete', durable: true, verifiers: 1 },
  });
  expect(Date.parse(lastOf('key.disabled')?.timestamp ?? '')).toBeGreaterThan(0);
});

test('a rotated key and its successor have one each', async () => {
  const { keyId } = await newKey();
  const rotated = await fleet.ok('keys.rerollKey', { keyId, expiration: 60_000 });
  secrets.push(rotated.key);
  await receives(keyId, ['key.created', 'key.rotated']);
  await fleet.until(() => lastOf('key.created')?.data.keyId === rotated.keyId);
  expect(lastOf('key.rotated')?.data.after.rerolledTo).toBe(rotated.keyId);
});

test('many keys changed at once have an event each', async () => {
  const sha256 = (i: number) => String(i).repeat(64);
  const keys = [1, 2, 3].map((i) => ({ sha256: sha256(i) }));
  const { results } = await fleet.ok('keys.importKeys', { apiId: 'shop', keys });
  const keyIds: string[] = results.map((each: { keyId: string }) => each.keyId);
  await fleet.ok('keys.updateKeys', { apiId: 'shop', keyIds, enabled: false });
  await fleet.ok('keys.deleteKeys', { apiId: 'shop', keyIds });
  for (const keyId of keyIds) await receives(keyId, ['key.created', 'key.disabled', 'key.deleted']);
});

test('identities, roles, root keys and APIs have theirs', async () => {
  const { identityId } = await fleet.ok('identities.createIdentity', { externalId: 'ada' });
  await fleet.ok('identities.updateIdentity', { identityId, meta: { plan: 'pro' } });
  await fleet.ok('identities.updateIdentity', { identityId, enabled: false });
  await fleet.ok('identities.updateIdentity', { identityId, enabled: true });
  await fleet.ok('identities.deleteIdentity', { identityId });
  const verbs = ['created', 'updated', 'disabled', 'enabled', 'deleted'];
  await receives(
    identityId,
    verbs.map((verb) => `identity.${verb}`),
  );
  expect(lastOf('identity.disabled')?.data.propagation).toMatchObject({ state: 'complete' });
  const { roleId } = await fleet.ok('permissions.createRole', { name: 'editor' });
  await fleet.ok('permissions.setRolePermissions', { roleId, permissions: ['a'] });
  await fleet.ok('permissions.deleteRole', { roleId });
  await receives(roleId, ['role.created', 'role.updated', 'role.deleted']);
  const { rootKeyId, key } = await fleet.ok('rootKeys.createRootKey', {
    name: 'support',
    permissions: ['api.shop.read_key'],
  });
  secrets.push(key);
  await fleet.ok('rootKeys.updateRootKey', { rootKeyId, enabled: false });
  await fleet.ok('rootKeys.updateRootKey', { rootKeyId, enabled: true });
  await fleet.ok('rootKeys.deleteRootKey', { rootKeyId });
  const told = ['created', 'disabled', 'enabled', 'deleted'].map((verb) => `root_key.${verb}`);
  await receives(rootKeyId, told);
  await fleet.ok('apis.createApi', { apiId: 'webshop', name: 'W' });
  await fleet.ok('apis.updateApi', { apiId: 'webshop', name: 'Webshop' });
  await fleet.ok('apis.deleteApi', { apiId: 'webshop' });
  await receives('webshop', ['api.created', 'api.updated', 'api.deleted']);
});

test('an endpoint gets only its types and APIs', async () => {
  const chosen = await Receiver.start();
  const events = ['key.disabled', 'identity.*'];
  const input = { url: chosen.url, events, apiIds: ['billing'] };
  const { endpointId } = await fleet.ok('webhooks.createEndpoint', input);
  const shop = await newKey();
  const billing = await newKey({ apiId: 'billing' });
  await fleet.ok('identities.createIdentity', { externalId: 'grace' });
  await fleet.ok('keys.updateKey', { keyId: shop.keyId, enabled: false });
  await fleet.ok('keys.updateKey', { keyId: billing.keyId, enabled: false });
  await receives(billing.keyId, ['key.created', 'key.disabled']);
  await fleet.until(() => chosen.received.length > 0);
  expect(chosen.received.map(({ type, data }) => [type, data.keyId])).toEqual([
    ['key.disabled', billing.keyId],
  ]);
  await fleet.ok('webhooks.deleteEndpoint', { endpointId });
  await chosen.stop();
});

test('spent credits have one event, not before', async () => {
  const { keyId, key } = await newKey({ remaining: 3 });
  for (let i = 0; i < 3; i++) expect(await fleet.verdict(key)).toBe('VALID');
  expect(await fleet.verdict(key)).toBe('USAGE_EXCEEDED');
  await receives(keyId, ['key.created', 'key.credits_exhausted']);
  await fleet.ok('keys.updateRemaining', { keyId, op: 'set', value: 1 });
  expect(await fleet.verdict(key)).toBe('VALID');
  expect(await fleet.verdict(key)).toBe('USAGE_EXCEEDED');
  await fleet.until(() => receiver.typesOf(keyId).length === 4);
  expect(receiver.typesOf(keyId).slice(2)).toEqual(['key.updated', 'key.credits_exhausted']);
});

test('an identity that spent all has one', async () => {
  const { identityId } = await fleet.ok('identities.createIdentity', {
    ...{ externalId: 'edsger', credits: { remaining: 1 } },
  });
  const { key } = await newKey({ externalId: 'edsger' });
  expect(await fleet.verdict(key)).toBe('VALID');
  expect(await fleet.verdict(key)).toBe('USAGE_EXCEEDED');
  await receives(identityId, ['identity.created', 'identity.credits_exhausted']);
});

test('what is nearly used up has an event', async () => {
  const ratelimit = { limit: 2, interval: 'day', thresholds: [50] };
  const { keyId, key } = await newKey({ remaining: 2, thresholds: [50], ratelimit });
  const ratelimits = [{ ...ratelimit, name: 'all', autoApply: true }];
  await fleet.ok('identities.createIdentity', { externalId: 'alan', ratelimits });
  const other = await newKey({ externalId: 'alan' });
  for (const each of [key, other.key]) expect(await fleet.verdict(each)).toBe('VALID');
  await fleet.until(() => receiver.received.filter(({ type }) => /low$/.test(type)).length === 3);
  expect(receiver.typesOf(keyId).sort()).toEqual(['credits.low', 'key.created', 'quota.low']);
});

test('a key has an event before and at its expiry', async () => {
  const expires = Date.now() + 6000;
  const { keyId } = await newKey({ expires, name: 'short', externalId: 'ada' });
  await receives(keyId, ['key.created', 'key.expiring', 'key.expired']);
  expect(lastOf('key.expiring')?.data).toEqual({
    ...{ apiId: 'shop', keyId, name: 'short', externalId: 'ada' },
    ...{ expires, days: 1 },
  });
  expect(Date.parse(lastOf('key.expired')?.timestamp ?? '')).toBe(expires);
});

test('a damaged event or endpoint stops no other', async () => {
  const damaged = [
    '{"time":9000000000000000,"requestId":"r","operation":"keys.updateKey","outcome":"OK","by":{"address":"a"},"on":{"keyId":"key_x"}}',
    'not JSON',
    '[]',
  ];
  for (const text of damaged) await fleet.client.xadd('kf:{!audit}:done', '*', 'e', text, 'k', '');
  for (const text of ['{"type":"key.expired"}', '{"type":"key.expired","keyIds":3}', 'null', ''])
    await fleet.client.xadd('kf:{!audit}:notices', '*', 'e', text);
  await fleet.client.hset('kf:{!audit}:endpoints', 'endpoint_damaged', '{');
  const { keyId } = await newKey();
  await receives(keyId, ['key.created']);
  await fleet.client.hdel('kf:{!audit}:endpoints', 'endpoint_damaged');
  await fleet.until(async () => (await fleet.client.xlen('kf:{!audit}:notices')) === 0);
});

test('every event is signed, and none has a secret', () => {
  expect(receiver.received.length).toBeGreaterThan(30);
  expect(receiver.unsigned).toBe(0);
  expect(secrets.length).toBeGreaterThan(5);
  const bodies = receiver.received.map(({ text }) => text).join('\n');
  for (const secret of secrets) expect(bodies.includes(secret)).toBe(false);
  expect(bodies).not.toContain('whsec_');
});

test('every event fits the documented schema', async () => {
  const address = fleet.controlPlanes[0]?.address;
  const { webhooks, components } = (await fleet.get(`${address}/openapi.json`)).body;
  expect(Object.keys(webhooks)).toEqual(Object.keys(EVENT_TYPES));
  for (const { type, text } of receiver.received) {
    const { $ref } = webhooks[type].post.requestBody.content['application/json'].schema;
    const schema = components.schemas[$ref.split('/').at(-1)];
    expect([...Value.Errors(schema, JSON.parse(text))], text).toEqual([]);
    const { properties } = schema.properties.data;
    // What is sent is what is documented.
    expect(Object.keys(properties), text).toEqual(expect.arrayContaining(Object.keys(JSON.parse(text).data)));
  }
});

test('every change names its event or its exemption', () => {
  const all: readonly Operation[] = [...operations, ...operationsV2];
  const silent = all.filter(({ kind, event }) => kind === 'change' && !event).map(({ name }) => name);
  expect([...new Set(silent)]).toEqual([
    // Each imported key has an event of its own.
    'keys.importKeys',
    'permissions.createPermission',
    'permissions.updatePermission',
    'permissions.deletePermission',
    'rootKeys.endSession',
    'webhooks.createEndpoint',
    'webhooks.updateEndpoint',
    'webhooks.deleteEndpoint',
    'webhooks.rotateSecret',
    'webhooks.redeliver',
    'webhooks.test',
    'fleet.acceptHistory',
    'ratelimit.setOverride',
    'ratelimit.deleteOverride',
  ]);
  const sent = new Set(receiver.received.map(({ type }) => type));
  // These have tests of their own.
  const others = ['key.unused', 'key.leaked', 'root_key.leaked', 'api.history_refused', 'verifier.lost'];
  others.push('webhook.disabled', 'webhook.test');
  expect(Object.keys(EVENT_TYPES).filter((type) => !sent.has(type))).toEqual(others);
});
