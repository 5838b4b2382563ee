import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { Value } from 'typebox/value';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operations as all } from '../../../../control-plane/operations.ts';
import { refusalsKey, refusedRequestsKey } from '../../../../shared/redis/redis-keys.ts';
import { type Answer, Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { Document, inputsOf, type Operation, type Schema } from '../../../harness/openapi.ts';
import { share } from '../../../harness/share.ts';

let fleet: Fleet;
let base: string;
let document: Document;
let operations: Operation[];

beforeAll(async () => {
  // A disk that is held up for seconds is no fault of what is tested: no answer may be 503.
  const patient = { REDIS_COMMAND_TIMEOUT_MS: '60000', REDIS_CONNECT_TIMEOUT_MS: '60000' };
  fleet = await Fleet.start({
    env: { STATUS_PERIOD_MS: '100', FAILURES_PER_MINUTE: '0', WEBHOOK_NETWORKS: '127.0.0.0/8', ...patient },
  });
  base = fleet.controlPlanes[0]?.address ?? '';
  document = new Document((await fleet.get(`${base}/openapi.json`)).body);
  ({ operations } = document);
});
afterAll(() => fleet.stop());

function call({ method, path }: Operation, input: object, rootKey = ROOT_KEY): Promise<Answer> {
  const headers = { authorization: `Bearer ${rootKey}` };
  if (method === 'POST') return fleet.post(base + path, input, headers);
  const texts = Object.entries(input).map(([name, value]): [string, string] => [
    name,
    typeof value === 'string' ? value.toWellFormed() : JSON.stringify(value),
  ]);
  return fleet.get(`${base}${path}?${new URLSearchParams(texts)}`, headers);
}

describe('the document', () => {
  test('is OpenAPI 3.1, for whoever asks', async () => {
    await document.check();
  });

  test('makes clients that compile', async () => {
    const v2 = (await fleet.get(`${base}/openapi-v2.json`)).body;
    const verifier = JSON.parse(readFileSync('verifier/openapi.json', 'utf8'));
    const faults: string[] = [];
    const visit = (value: unknown, place: string) => {
      if (typeof value !== 'object' || value === null) return;
      const { type, format, anyOf, ...rest } = value as Schema;
      if (type === 'integer' && !/^int(32|64)$/.test(String(format))) faults.push(`${place}: no format`);
      if (Array.isArray(anyOf) && anyOf.every((one) => one.enum)) faults.push(`${place}: not one enum`);
      if (Array.isArray(anyOf) && anyOf.some((one) => one.type === 'null'))
        faults.push(`${place}: null apart`);
      if ('const' in rest) faults.push(`${place}: const`);
      // A default of another type than its schema's.
      if (type === 'object' && 'default' in rest && typeof rest['default'] !== 'object')
        faults.push(`${place}: default`);
      for (const [name, part] of Object.entries(value))
        if (name !== 'example') visit(part, `${place}/${name}`);
    };
    for (const [name, each] of Object.entries({ v1: document.whole, v2, verifier })) visit(each, name);
    expect(faults).toEqual([]);
    // Generators name no type for a body that stands in a webhook itself.
    for (const [type, { post }] of Object.entries(
      document.whole.webhooks as Record<string, { post: Operation }>,
    ))
      expect(post.requestBody?.content['application/json']?.schema, type).toEqual({
        $ref: expect.stringMatching(/^#\/components\/schemas\/\w+Event$/),
      });
  });

  test('says how every operation works and can end', () => {
    expect(operations.length).toBeGreaterThan(15);
    expect(new Set(operations.map(({ operationId }) => operationId)).size).toBe(operations.length);
    for (const { path, summary, description, responses } of operations) {
      expect(summary, path).toMatch(/^[A-Z]/);
      expect(description, path).toMatch(/Needs the permission `(api|root)\./);
      expect(Object.keys(responses), path).toEqual(
        expect.arrayContaining(['200', '400', '401', '403', '429', '500', '503']),
      );
    }
  });

  test('requires nothing with a default', async () => {
    const bodies = operations.flatMap(({ operationId, requestBody, parameters = [] }) => {
      for (const { name, required, schema } of parameters)
        expect(required === true && schema['default'] !== undefined, `${operationId} ${name}`).toBe(false);
      const { schema, example } = requestBody?.content['application/json'] ?? {};
      return schema ? [{ operationId, schema, example }] : [];
    });
    expect(bodies.map(({ operationId }) => operationId)).toContain('createKey');
    for (const { operationId, schema, example } of bodies) {
      const defaulted = Object.entries(schema.properties ?? {}).filter(
        ([, of]) => of['default'] !== undefined,
      );
      for (const [name] of defaulted) expect(schema.required, `${operationId} ${name}`).not.toContain(name);
      expect(Value.Check(schema, example), operationId).toBe(true);
      expect(example, operationId).not.toHaveProperty('expires');
    }
    const created = operations.find(({ operationId }) => operationId === 'createKey') as Operation;
    const { example } = bodies.find(({ operationId }) => operationId === 'createKey') ?? {};
    expect((await call(created, example as object)).status).toBe(200);
  });

  test('says of every response what it is', async () => {
    for (const path of ['/openapi.json', '/openapi-v2.json'])
      expect(JSON.stringify((await fleet.get(`${base}${path}`)).body)).not.toContain('Default Response');
  });

  test('leaves out no operation that there is', () => {
    const grep = (pattern: string) =>
      execFileSync('grep', ['-rhozP', '--include=*.ts', '--exclude-dir=unkey-v2', pattern, 'control-plane'], {
        encoding: 'utf8',
      });
    const namesIn = (text: string) => [...text.matchAll(/name: '(.+)'/g)].map(([, name]) => name ?? '');
    const paths = namesIn(grep("operation\\(\\{\\n  name: '[a-zA-Z.]+'")).map((name) => `/v1/${name}`);
    expect(operations.map(({ path }) => path).sort()).toEqual(paths.sort());
    expect(paths.length).toBe(all.length);
  });
});

test('every operation succeeds as documented', async () => {
  const expires = Date.now() + 1_000_000;
  const key = { apiId: 'shop', name: 'Ada', externalId: 'ada', expires, meta: { plan: 'pro' } };
  const { keyId, key: secret } = await fleet.ok('keys.createKey', key);
  const { roleId } = await fleet.ok('permissions.createRole', { name: 'editor' });
  const { propagation } = await fleet.ok('permissions.setRolePermissions', { roleId, permissions: ['b'] });
  const { identityId } = await fleet.ok('identities.createIdentity', { externalId: 'bob' });
  const renamed = await fleet.ok('identities.updateIdentity', { identityId, meta: { plan: 'free' } });
  const ofApi = await fleet.ok('apis.updateApi', { apiId: 'shop', tokenAudiences: null });
  const { rootKeyId } = await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions: ['*'] });
  await fleet.until(async () => (await fleet.ok('fleet.listVerifiers')).verifiers.length > 0);
  const requestId = 'a-refused-request';
  const refusal = { t: 1, c: 'FORBIDDEN', w: 'ip', r: requestId, v: 'verifier_1', a: '::1', p: 'GET /' };
  await fleet.client.hset(refusedRequestsKey('shop'), requestId, keyId);
  await fleet.client.hset(refusalsKey('shop', keyId), '0', `${requestId} ${JSON.stringify(refusal)}`);
  const { endpointId } = await fleet.ok('webhooks.createEndpoint', { url: 'http://127.0.0.1:1/' });
  await fleet.ok('keys.updateKey', { keyId, name: 'Grace' });
  let deliveryId = '';
  await fleet.until(async () => {
    const { deliveries } = await fleet.ok('webhooks.listDeliveries', { endpointId });
    deliveryId = deliveries[0]?.deliveryId ?? '';
    return deliveryId !== '';
  });
  await fleet.post(`${base}/dashboard/session`, { rootKey: ROOT_KEY });
  const [{ sessionId }] = (await fleet.ok('rootKeys.listSessions')).sessions;
  // In this order: what deletes comes last.
  const inputs: Readonly<Record<string, object>> = {
    createApi: { name: 'Books', apiId: 'books' },
    createKey: key,
    importKeys: { apiId: 'shop', keys: [{ sha256: 'ab'.repeat(32) }, { sha256: 'no' }] },
    updateKey: { keyId, name: null, enabled: false },
    addPermissions: { keyId, permissions: ['a', { name: 'b' }] },
    setPermissions: { keyId, permissions: [{ slug: 'b' }] },
    removePermissions: { keyId, permissions: [{ id: 'b' }], waitMs: 1000 },
    createRole: { name: 'writer' },
    getRole: { roleId },
    listRoles: {},
    updateRole: { roleId, description: 'Writes' },
    setRolePermissions: { roleId, permissions: ['a'] },
    setRoleLimits: { roleId, ratelimits: [] },
    getRolePropagation: { roleId, sequence: String(propagation.sequence) },
    createPermission: { name: 'Read files', slug: 'files.read', description: 'all of them' },
    updatePermission: { permissionId: 'files.read', managedBy: 'set' },
    getPermission: { permissionId: 'files.read' },
    listPermissions: {},
    createIdentity: { externalId: 'grace' },
    getIdentity: { identityId },
    listIdentities: { limit: '1' },
    listKeysOfIdentity: { externalId: 'owner', limit: '1' },
    updateIdentity: { externalId: 'bob', meta: { plan: 'pro' } },
    updateCredits: { externalId: 'bob', op: 'set', value: 5 },
    getIdentityPropagation: { identityId, sequence: String(renamed.propagation.sequence) },
    addRoles: { keyId, roles: [{ name: 'editor' }] },
    setRoles: { keyId, roles: ['editor'] },
    removeRoles: { keyId, roles: [{ id: roleId }] },
    updateRemaining: { keyId, op: 'set', value: 5 },
    rerollKey: { keyId, expiration: 1000 },
    updateKeys: { apiId: 'shop', keyIds: [keyId, 'none'], enabled: false },
    getKey: { keyId },
    getAllowances: { keyId },
    getIdentityAllowances: { identityId },
    whoami: { key: secret },
    getVerifications: { keyId, granularity: 'hour' },
    listRefusals: { keyId },
    explainKey: { keyId, permissions: 'a' },
    findVerdict: { requestId },
    listApiRefusals: { apiId: 'shop' },
    getApiVerifications: { apiId: 'shop', groupBy: 'tag' },
    queryUsage: { groupBy: 'api,code' },
    getPropagation: { keyId, sequence: '2' },
    getApiPropagation: { apiId: 'shop', sequence: String(ofApi.propagation.sequence) },
    listKeys: { apiId: 'shop', limit: '1' },
    listRefusedKeys: { apiId: 'shop' },
    updateApi: { apiId: 'shop', defaultPrefix: 'shop', defaultBytes: 24 },
    getApi: { apiId: 'shop' },
    listApis: { limit: '1' },
    createRootKey: { name: 'n', permissions: ['api.*.read_key'] },
    updateRootKey: { rootKeyId, enabled: false },
    deleteRootKey: { rootKeyId },
    listRootKeys: {},
    listSessions: {},
    endSession: { sessionId },
    listFindings: {},
    listVerifiers: {},
    acceptHistory: {},
    listEvents: { limit: '5' },
    createEndpoint: {
      url: 'https://hooks.example.com/hook',
      name: 'Hooks',
      events: ['key.*'],
      apiIds: ['shop'],
    },
    updateEndpoint: { endpointId, name: 'Hooks', apiIds: null },
    getEndpoint: { endpointId },
    listEndpoints: {},
    rotateSecret: { endpointId },
    listDeliveries: { endpointId, limit: '1' },
    redeliver: { endpointId, deliveryId },
    test: { endpointId },
    deleteEndpoint: { endpointId },
    deleteKey: { keyId },
    deleteKeys: { apiId: 'shop', externalId: 'ada' },
    deleteAllKeys: { apiId: 'shop' },
    deleteApi: { apiId: 'books' },
    deleteRole: { roleId },
    deletePermission: { permissionId: 'files.read' },
    deleteIdentity: { identityId },
  };
  expect(operations.map(({ operationId }) => operationId).sort()).toEqual(Object.keys(inputs).sort());
  for (const [name, input] of Object.entries(inputs)) {
    const operation = operations.find(({ operationId }) => operationId === name) as Operation;
    const answer = await call(operation, input);
    expect(answer.status, name).toBe(200);
    expect(document.faults(operation, answer), name).toEqual([]);
  }
});

test('every operation refuses as documented', async () => {
  const { key } = await fleet.ok('rootKeys.createRootKey', {
    name: 'n',
    permissions: ['api.none.create_key'],
  });
  for (const operation of operations) {
    const stranger = await call(operation, {}, 'nobody-knows-this-root-key-00000000');
    expect(stranger.status, operation.path).toBe(401);
    expect(document.faults(operation, stranger)).toEqual([]);
    const [input] = fc.sample(inputsOf(operation, {}), 1);
    const limited = await call(operation, input ?? {}, key);
    expect([200, 400, 403, 404], operation.path).toContain(limited.status);
    expect(document.faults(operation, limited)).toEqual([]);
  }
});

test('answers any input as documented', async () => {
  const created = await Promise.all([1, 2, 3].map(() => fleet.ok('keys.createKey', { apiId: 'fuzzed' })));
  const { rootKeyId } = await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions: ['*'] });
  const known = {
    apiId: ['fuzzed'],
    keyId: created.map(({ keyId }) => keyId),
    rootKeyId: [rootKeyId],
    sequence: ['1'],
  };
  for (const operation of share(operations, 4)) {
    await fc.assert(
      fc.asyncProperty(inputsOf(operation, known), async (input) => {
        const answer = await call(operation, input);
        expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(500);
        expect(document.faults(operation, answer)).toEqual([]);
      }),
      { numRuns: 20 },
    );
  }
});
