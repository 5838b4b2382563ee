import { afterAll, beforeAll, expect, test } from 'vitest';
import { PROTOCOL } from '../../../../shared/protocol/records/protocol.ts';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

const LEASE_MS = 1000;
let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { LEASE_MS: `${LEASE_MS}` } });
});
afterAll(() => fleet.stop());

const newKey = async (apiId: string): Promise<string> => (await fleet.ok('keys.createKey', { apiId })).keyId;
/** A follower that applied nothing, and does not answer. */
const silent = (apiId: string) => fleet.client.zadd(apiKeys(apiId).members, 0, `${PROTOCOL}.silent`);
const answerOf = async (operation: string, input: object, rootKey?: string) => {
  const { status, body } = await fleet.admin(operation, input, rootKey === undefined ? {} : { rootKey });
  return [status, body.error?.code ?? body.propagation?.state];
};

test('a pending deletion has a receipt until the fence', async () => {
  const keyId = await newKey('shop');
  await silent('shop');
  const { propagation } = await fleet.ok('keys.deleteKey', { keyId, waitMs: 0 });
  expect(propagation.state).toBe('pending');
  const { sequence } = propagation;
  const ask = () => fleet.ok('keys.getPropagation', { keyId, sequence: String(sequence) });
  expect((await ask()).propagation).toMatchObject({
    ...{ state: 'pending', sequence, laggards: [`${PROTOCOL}.silent`] },
  });
  const again = await fleet.ok('keys.deleteKey', { keyId });
  expect(again.propagation).toMatchObject({ state: 'pending', sequence });
  await fleet.until(async () => (await ask()).propagation.state === 'complete');
  expect((await fleet.ok('keys.deleteKey', { keyId })).propagation).toMatchObject({
    ...{ state: 'complete', sequence, durable: true },
  });
});

test('a deletion may be repeated while it waits', async () => {
  const keyId = await newKey('waiting');
  await silent('waiting');
  const first = fleet.ok('keys.deleteKey', { keyId });
  await fleet.until(async () => (await fleet.client.xlen(apiKeys('waiting').log)) === 1);
  expect((await fleet.ok('keys.deleteKey', { keyId })).propagation).toMatchObject({ sequence: 1 });
  expect((await first).propagation).toMatchObject({ state: 'complete', sequence: 1 });
});

test('is found in a long log, and forgotten with it', async () => {
  const [keyId, other] = [await newKey('long'), await newKey('long')];
  await fleet.ok('keys.updateKey', { keyId: other, name: 'a' });
  await fleet.ok('keys.deleteKeys', { apiId: 'long', keyIds: [keyId] });
  const { log } = apiKeys('long');
  const entry = ['h', 'hash', 'k', other, 'd', '["set"]'];
  for (let i = 3; i < 1200; i++) await fleet.client.xadd(log, `${i}-0`, ...entry);
  expect((await fleet.ok('keys.deleteKey', { keyId })).propagation).toMatchObject({ sequence: 2 });
  await fleet.client.xtrim(log, 'MAXLEN', 500);
  expect(await answerOf('keys.deleteKey', { keyId })).toEqual([404, 'NOT_FOUND']);
});

test('a record that was lost is no deletion', async () => {
  const keyId = await newKey('lost');
  await fleet.ok('keys.updateKey', { keyId, meta: { long: 'x'.repeat(2000) } });
  await fleet.client.del(`${apiKeys('lost').base}k:${keyId}`);
  expect(await answerOf('keys.deleteKey', { keyId })).toEqual([404, 'NOT_FOUND']);
  expect(await answerOf('keys.deleteKey', { keyId, apiId: 'lost' })).toEqual([404, 'NOT_FOUND']);
});

test('an absent key is deleted, by its API', async () => {
  const [keyId, other] = [await newKey('absent'), await newKey('absent')];
  await fleet.ok('keys.deleteKey', { keyId });
  const { log } = apiKeys('absent');
  await fleet.ok('keys.updateKey', { keyId: other, name: 'a' });
  await fleet.client.xtrim(log, 'MAXLEN', 1);
  const deleted = await fleet.ok('keys.deleteKey', { keyId, apiId: 'absent' });
  expect(deleted.propagation).toMatchObject({ state: 'complete', sequence: 3 });
  const never = await fleet.ok('keys.deleteKey', { keyId: 'key_never', apiId: 'absent' });
  expect(never.propagation).toMatchObject({ state: 'complete', sequence: 4 });
  const again = await fleet.ok('keys.deleteKey', { keyId: 'key_never', apiId: 'absent' });
  expect(again.propagation).toMatchObject({ state: 'complete', sequence: 4 });
  expect(await answerOf('keys.deleteKey', { keyId: 'key_never' })).toEqual([404, 'NOT_FOUND']);
  expect(await answerOf('keys.deleteKey', { keyId: 'not-an-id', apiId: 'absent' })).toEqual([
    404,
    'NOT_FOUND',
  ]);
  expect((await fleet.ok('keys.getKey', { keyId: other })).name).toBe('a');
});

test('an absent key waits for who may have it', async () => {
  await newKey('slow');
  await silent('slow');
  const ask = () => fleet.ok('keys.deleteKey', { keyId: 'key_slow', apiId: 'slow', waitMs: 0 });
  const { propagation } = await ask();
  expect(propagation).toMatchObject({ state: 'pending', sequence: 1 });
  const receipt = { keyId: 'key_slow', apiId: 'slow', sequence: '1' };
  expect((await fleet.ok('keys.getPropagation', receipt)).propagation).toMatchObject({ state: 'pending' });
  await fleet.until(async () => (await ask()).propagation.state === 'complete');
  expect((await fleet.ok('keys.getPropagation', receipt)).propagation).toMatchObject({ state: 'complete' });
});

test('with its API, a key is deleted and stays so', async () => {
  const keyId = await newKey('gone');
  await silent('gone');
  await fleet.ok('apis.deleteApi', { apiId: 'gone', waitMs: 0 });
  const ask = () => fleet.ok('keys.deleteKey', { keyId, apiId: 'gone', waitMs: 0 });
  expect((await ask()).propagation).toMatchObject({ state: 'pending', sequence: 1 });
  await fleet.until(async () => (await ask()).propagation.state === 'complete');
  await fleet.until(async () => (await fleet.client.exists(apiKeys('gone').head)) === 0);
  expect((await ask()).propagation).toMatchObject({ state: 'complete', sequence: 0 });
});

test('a key of another API is not said to be gone', async () => {
  const keyId = await newKey('here');
  await newKey('there');
  const { body } = await fleet.admin('keys.deleteKey', { keyId, apiId: 'there' });
  expect(body.error).toMatchObject({
    ...{ code: 'NOT_FOUND', message: `apiId: key ${keyId} is in api here; name that` },
  });
  const { key } = await fleet.ok('rootKeys.createRootKey', {
    ...{ name: 'there', permissions: ['api.there.delete_key'] },
  });
  // Whoever may not see that API learns nothing of it.
  expect(await answerOf('keys.deleteKey', { keyId, apiId: 'there' }, key)).toEqual([200, 'complete']);
  expect(await answerOf('keys.deleteKey', { keyId, apiId: 'here' }, key)).toEqual([404, 'NOT_FOUND']);
  expect((await fleet.admin('keys.getKey', { keyId })).status).toBe(200);
});

test('others than who may see the key get 404', async () => {
  const keyId = await newKey('hidden');
  await fleet.ok('keys.deleteKey', { keyId });
  const grant = { name: 'other', permissions: ['api.other.read_key', 'api.other.delete_key'] };
  const { key } = await fleet.ok('rootKeys.createRootKey', grant);
  for (const [operation, rest] of [
    ['keys.deleteKey', {}],
    ['keys.getPropagation', { sequence: '1' }],
  ] as const) {
    expect(await answerOf(operation, { keyId, ...rest }, key), operation).toEqual([404, 'NOT_FOUND']);
    expect(await answerOf(operation, { keyId: 'key_none', ...rest }), operation).toEqual([404, 'NOT_FOUND']);
    expect(await answerOf(operation, { keyId, ...rest }), operation).toEqual([200, 'complete']);
  }
  expect((await fleet.admin('keys.getKey', { keyId })).status).toBe(404);
});

test('version 2 says 404 to a repeated deletion', async () => {
  const keyId = await newKey('v2');
  const url = `${fleet.controlPlanes[0]?.address}/v2/keys.deleteKey`;
  const authorization = { authorization: `Bearer ${ROOT_KEY}` };
  expect((await fleet.post(url, { keyId }, authorization)).status).toBe(200);
  expect((await fleet.post(url, { keyId }, authorization)).status).toBe(404);
});
