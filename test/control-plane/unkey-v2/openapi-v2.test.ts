import fc from 'fast-check';
import { Value } from 'typebox/value';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operationsV2 } from '../../../control-plane/unkey-v2/index.ts';
import { type Answer, Fleet, ROOT_KEY } from '../../harness/fleet.ts';
import { Document, inputsOf, type Operation } from '../../harness/openapi.ts';
import { share } from '../../harness/share.ts';

/** The document of the second generation, held to what that of the first is in openapi.test.ts. */
let fleet: Fleet;
let base: string;
let document: Document;
let operations: Operation[];

beforeAll(async () => {
  const patient = { REDIS_COMMAND_TIMEOUT_MS: '60000', REDIS_CONNECT_TIMEOUT_MS: '60000' };
  fleet = await Fleet.start({ env: { STATUS_PERIOD_MS: '100', ...patient } });
  base = fleet.controlPlanes[0]?.address ?? '';
  document = new Document((await fleet.get(`${base}/openapi-v2.json`)).body);
  ({ operations } = document);
});
afterAll(() => fleet.stop());

const call = ({ path }: Operation, input: object, rootKey = ROOT_KEY): Promise<Answer> =>
  fleet.post(base + path, input, { authorization: `Bearer ${rootKey}` });

describe('the document', () => {
  test('is OpenAPI 3.1 with every operation as a POST', async () => {
    await document.check();
    expect(operations.map(({ path }) => path).sort()).toEqual(operationsV2.map(({ path }) => path).sort());
    expect(new Set(operations.map(({ method }) => method))).toEqual(new Set(['POST']));
    expect(new Set(operations.map(({ operationId }) => operationId)).size).toBe(operations.length);
  });

  test('says how every operation works and can end', () => {
    for (const { path, summary, description, responses, requestBody } of operations) {
      expect(summary, path).toMatch(/^[A-Z]/);
      expect(description, path).toMatch(/Needs the permission `(api|root)\./);
      expect(Object.keys(responses), path).toEqual(
        expect.arrayContaining(['200', '400', '401', '403', '429', '500', '503']),
      );
      const { schema = {}, example } = requestBody?.content['application/json'] ?? {};
      expect(Value.Check(schema, example), path).toBe(true);
    }
  });
});

test('every operation succeeds as documented', async () => {
  const key = { apiId: 'shop', name: 'Ada', externalId: 'ada', meta: { plan: 'pro' } };
  const { keyId, key: secret } = await fleet.ok('keys.createKey', { ...key, permissions: ['a'] });
  const spare = (await fleet.ok('keys.createKey', key)).keyId;
  const { roleId } = await fleet.ok('permissions.createRole', { name: 'editor', permissions: ['a'] });
  await fleet.ok('apis.createApi', { name: 'Books', apiId: 'books' });
  const hash = 'ab'.repeat(32);
  const credits = { remaining: 5, refill: { interval: 'daily', amount: 5 } };
  const ratelimits = [{ name: 'tokens', limit: 5, duration: 60_000, autoApply: true }];
  // In this order: what deletes comes last.
  const inputs: Readonly<Record<string, object>> = {
    createKey: { ...key, credits, ratelimits },
    getKey: { keyId },
    updateKey: { keyId, credits, ratelimits },
    whoami: { key: secret },
    updateCredits: { keyId, operation: 'set', value: 5 },
    addPermissions: { keyId, permissions: ['b'] },
    setPermissions: { keyId, permissions: ['b', 'c'] },
    removePermissions: { keyId, permissions: ['b'] },
    addRoles: { keyId, roles: ['editor'] },
    setRoles: { keyId, roles: ['editor'] },
    removeRoles: { keyId, roles: ['editor'] },
    migrateKeys: { migrationId: 'm', apiId: 'shop', keys: [{ hash, roles: ['editor'] }] },
    rerollKey: { keyId, expiration: 1000 },
    createApi: { name: 'Shoes' },
    getApi: { apiId: 'shop' },
    listKeys: { apiId: 'shop', limit: 1 },
    getVerifications: {
      query: 'SELECT outcome, SUM(count) AS n FROM key_verifications_per_day_v1 GROUP BY outcome',
    },
    setOverride: { namespace: 'sms', identifier: 'ada', limit: 5, duration: 60_000 },
    getOverride: { namespace: 'sms', identifier: 'ada' },
    listOverrides: { namespace: 'sms' },
    createRole: { name: 'writer', permissions: ['b'] },
    getRole: { role: roleId },
    listRoles: {},
    setRolePermissions: { roleId, permissions: ['a'] },
    createPermission: { name: 'Read files', slug: 'files.read' },
    getPermission: { permission: 'files.read' },
    listPermissions: {},
    createIdentity: { externalId: 'grace', ratelimits },
    getIdentity: { identity: 'grace' },
    listIdentities: { limit: 1 },
    updateIdentity: { identity: 'grace', meta: { plan: 'pro' } },
    deleteKey: { keyId: spare, permanent: true },
    deleteOverride: { namespace: 'sms', identifier: 'ada' },
    deleteRole: { role: roleId },
    deletePermission: { permission: 'files.read' },
    deleteIdentity: { identity: 'grace' },
    deleteApi: { apiId: 'books' },
  };
  expect(operations.map(({ operationId }) => operationId).sort()).toEqual(Object.keys(inputs).sort());
  for (const [name, input] of Object.entries(inputs)) {
    const operation = operations.find(({ operationId }) => operationId === name) as Operation;
    const answer = await call(operation, input);
    expect(answer.status, `${name} ${JSON.stringify(answer.body)}`).toBe(200);
    expect(document.faults(operation, answer), name).toEqual([]);
  }
});

test('every operation refuses a stranger', async () => {
  for (const operation of operations) {
    const answer = await call(operation, {}, 'nobody-knows-this-root-key-00000000');
    expect(answer.status, operation.path).toBe(401);
    expect(document.faults(operation, answer)).toEqual([]);
  }
});

test('answers any input as documented', async () => {
  const created = await Promise.all([1, 2, 3].map(() => fleet.ok('keys.createKey', { apiId: 'fuzzed' })));
  const known = { apiId: ['fuzzed'], keyId: created.map(({ keyId }) => keyId) };
  for (const operation of share(operations, 4)) {
    await fc.assert(
      fc.asyncProperty(inputsOf(operation, known), async (input) => {
        const answer = await call(operation, input);
        expect(answer.status, `${operation.path} ${JSON.stringify(answer.body)}`).toBeLessThan(500);
        expect(document.faults(operation, answer), operation.path).toEqual([]);
      }),
      { numRuns: 20 },
    );
  }
});
