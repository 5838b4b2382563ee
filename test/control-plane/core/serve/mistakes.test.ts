import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';

/** The usual mistakes of people who use the interface by hand. Each error says what to do, in both generations. */
let fleet: Fleet;
let base: string;
let key: string;
const bearer = { authorization: `Bearer ${ROOT_KEY}` };

beforeAll(async () => {
  fleet = await Fleet.start();
  base = (await fleet.addControlPlane({ API_AUTO_CREATE: 'false' })).address;
  await fleet.ok('apis.createApi', { name: 'orders', apiId: 'orders' });
  key = (await fleet.ok('keys.createKey', { apiId: 'orders' })).key;
});
afterAll(() => fleet.stop());

interface Mistake {
  readonly operation: string;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
  readonly method?: string;
}
/** Sends a mistake, and returns the status and each problem with its fix. */
async function errorOf(version: 'v1' | 'v2', { operation, body, headers, method = 'POST' }: Mistake) {
  const answer = await fleet.send(`${base}/${version}/${operation}`, {
    method,
    headers: { 'content-type': 'application/json', ...bearer, ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const { message, detail, errors } = answer.body.error;
  return { status: answer.status, message: (message ?? detail) as string, errors, answer };
}
const ownKey = () => ({ authorization: `Bearer ${key}` });

describe.each(['v1', 'v2'] as const)('in %s', (version) => {
  test.each<[string, () => Mistake, number, string]>([
    [
      'a misspelt field',
      () => ({ operation: 'keys.updateKey', body: { keyId: 'key_x', enabeld: false } }),
      400,
      'enabeld: unknown field; did you mean enabled?',
    ],
    [
      'a field in another case',
      () => ({ operation: 'keys.createKey', body: { apiId: 'orders', external_id: 'a' } }),
      400,
      'external_id: unknown field; did you mean externalId?',
    ],
    [
      'a number as a string',
      () => ({ operation: 'keys.createKey', body: { apiId: 'orders', byteLength: '16' } }),
      400,
      'byteLength: must be integer; send it without quotes',
    ],
    [
      'an expiry in seconds',
      () => ({ operation: 'keys.createKey', body: { apiId: 'orders', expires: 1_800_000_000 } }),
      400,
      'expires: must be Unix milliseconds, not seconds; send 1893456000000 instead of 1893456000',
    ],
    [
      'a secret in place of a key id',
      () => ({ operation: 'keys.updateKey', body: { keyId: key, enabled: false } }),
      400,
      'keyId: must not be a key or root key; send the id; anyone who saw the request may know the key, so rotate it',
    ],
    [
      'a misspelt operation',
      () => ({ operation: 'keys.createkey', body: {} }),
      404,
      `no such path; did you mean /${version}/keys.createKey?`,
    ],
    [
      'a misspelt group',
      () => ({ operation: 'key.createKey', body: {} }),
      404,
      `no such path; did you mean /${version}/keys.createKey?`,
    ],
    [
      'verifyKey at the control plane',
      () => ({ operation: 'keys.verifyKey', body: { key: 'a' } }),
      404,
      'no such path: send keys.verifyKey to a verifier; the verifiers have addresses of their own, and fleet.listVerifiers lists those that run',
    ],
    [
      'GET in place of POST',
      () => ({ operation: 'keys.createKey', method: 'GET' }),
      405,
      'this path accepts only POST; send POST, with the fields as JSON in the body',
    ],
    [
      'a form in place of JSON',
      () => ({
        operation: 'keys.createKey',
        body: {},
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
      }),
      415,
      'Content-Type: must be application/json; send the body as JSON, with the header Content-Type: application/json',
    ],
    [
      'a root key without Bearer',
      () => ({ operation: 'keys.createKey', body: {}, headers: { authorization: ROOT_KEY } }),
      401,
      'Authorization: must be of the form "Bearer <root key>"; put "Bearer " before the root key',
    ],
    [
      'a key in place of a root key',
      () => ({ operation: 'keys.createKey', body: {}, headers: ownKey() }),
      401,
      'Authorization: the root key is unknown or disabled; this is no root key but a key of an API: root keys begin with kfroot_',
    ],
    [
      'a misspelt API',
      () => ({ operation: 'keys.createKey', body: { apiId: 'order' } }),
      404,
      'api order not found; did you mean orders?',
    ],
    [
      'the id of an API in place of that of a key',
      () => ({ operation: 'keys.updateKey', body: { keyId: 'orders', enabled: false } }),
      404,
      'key orders not found; ids of keys begin with key_, as createKey returned them',
    ],
    [
      'the id of a key in place of that of an API',
      () => ({ operation: 'apis.deleteApi', body: { apiId: 'key_1abc' } }),
      404,
      'api key_1abc not found; this is the id of a key: send the id of its API',
    ],
  ])('%s is refused with a fix', async (_name, mistake, status, message) => {
    const error = await errorOf(version, mistake());
    expect(error).toMatchObject({ status, message });
    expect(JSON.stringify(error.answer.body)).not.toContain(key);
    if (status === 405) expect(error.answer.headers['allow']).toBe('POST');
    if (version === 'v1' || status !== 400) return;
    const [, field, problem, fix] = /^([\w.]+): (.*?); (.*)$/.exec(message) ?? [];
    expect(error.errors).toEqual([{ location: `body.${field}`, message: problem, fix }]);
  });

  test('tells all faults of a body, at most ten', async () => {
    const body = { apiId: 'a b', nmae: 'x', byteLength: '16', enabled: 1 };
    const { message, errors } = await errorOf(version, { operation: 'keys.createKey', body });
    const fields = message.split('\n').map((line) => line.split(':')[0]);
    expect(fields.sort()).toEqual(['apiId', 'byteLength', 'enabled', 'nmae']);
    if (version === 'v2') expect(errors).toHaveLength(4);
    const unknown = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`field${i}x`, i]));
    const many = await errorOf(version, { operation: 'keys.createKey', body: { apiId: 'a', ...unknown } });
    expect(many.message.split('\n')).toHaveLength(10);
  });

  test('tells only the first fault of a large body', async () => {
    const body = { apiId: 'a', permissions: new Array(2000).fill(1), nmae: 'x' };
    const { message } = await errorOf(version, { operation: 'keys.createKey', body });
    expect(message.split('\n')).toHaveLength(1);
  });
});

test('refuses POST for GET and typos, with a fix', async () => {
  const posted = await errorOf('v1', { operation: 'keys.getKey', body: {} });
  expect(posted).toMatchObject({
    status: 405,
    message: 'this path accepts only GET; send GET, with the fields in the query',
  });
  const query = 'keys.getVerifications?keyId=key_x&granularity=hours';
  expect(await errorOf('v1', { operation: query, method: 'GET' })).toMatchObject({
    status: 400,
    message: 'granularity: must be "hour" or "day"; did you mean hour?',
  });
});

test('names the right one for a misspelt permission', async () => {
  const body = { name: 'a', permissions: ['api.orders.create_keys', 'root.*.read_audits', 'all'] };
  const { status, message } = await errorOf('v1', { operation: 'rootKeys.createRootKey', body });
  expect(status).toBe(400);
  const rule = 'must be *, api.<apiId or *>.<action> or root.*.<action>';
  expect(message.split('\n')).toEqual([
    `permissions.0: ${rule}; did you mean api.orders.create_key?`,
    `permissions.1: ${rule}; did you mean root.*.read_audit?`,
    `permissions.2: ${rule}`,
  ]);
});

test('names only APIs that the root key may read', async () => {
  const permissions = ['api.order.create_key', 'api.other.read_api'];
  const { key: rootKey } = await fleet.ok('rootKeys.createRootKey', { name: 'limited', permissions });
  const headers = { authorization: `Bearer ${rootKey}` };
  const error = await errorOf('v1', { operation: 'keys.createKey', body: { apiId: 'order' }, headers });
  expect(error.message).toBe('api order not found; create it with apis.createApi');
});
