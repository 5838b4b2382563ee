import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { API_ACTIONS, ROOT_ACTIONS } from '../../../../control-plane/core/callers/root-permissions.ts';
import { operations as inV1 } from '../../../../control-plane/operations.ts';
import { operationsV2 } from '../../../../control-plane/unkey-v2/index.ts';
import {
  apiKeys,
  refusalsKey,
  refusedRequestsKey,
  webhookKeys,
} from '../../../../shared/redis/redis-keys.ts';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { type Answer, Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { Document, type Operation } from '../../../harness/openapi.ts';
import { share } from '../../../harness/share.ts';

/**
 * Every operation with every permission. What an operation needs is read from the OpenAPI document, so that one that
 * is added is tried, too: it fails here until it says what it needs and has an input.
 */
const MINE = 'mine';
const THEIRS = 'theirs';

let fleet: Fleet;
let operations: Operation[];
const secrets = new Map<string, string>();

beforeAll(async () => {
  fleet = await Fleet.start({
    verifiers: 0,
    env: { ROOT_KEY_CALLS_PER_MINUTE: '0', WEBHOOK_NETWORKS: '127.0.0.0/8' },
  });
  const documentAt = async (path: string) =>
    new Document((await fleet.get(`${fleet.controlPlanes[0]?.address}${path}`)).body).operations;
  // Of the second generation, those that the first does not have: the others share their checks.
  const onlyV2 = operationsV2
    .filter(({ name }) => !inV1.some((operation) => operation.name === name))
    .map(({ path }) => path);
  const ofV2 = await documentAt('/openapi-v2.json');
  operations = [
    ...(await documentAt('/openapi.json')),
    ...ofV2
      .filter(({ path }) => onlyV2.includes(path))
      .map((operation) => ({ ...operation, operationId: operation.path.slice('/v2/'.length) })),
  ];
  expect(operations.length).toBe(inV1.length + onlyV2.length);
  for (const apiId of [MINE, THEIRS]) await fleet.ok('apis.createApi', { apiId, name: apiId });
});
afterAll(() => fleet.stop());

/** A root key with these permissions; none where there are none, which no root key can have. */
async function rootKeyWith(permissions: readonly string[]): Promise<string> {
  const name = JSON.stringify(permissions);
  const known = secrets.get(name);
  if (known) return known;
  const { key } = await fleet.ok('rootKeys.createRootKey', { name: 'limited', permissions });
  secrets.set(name, key);
  return key;
}

const newSecret = async (apiId: string): Promise<string> => (await fleet.ok('keys.createKey', { apiId })).key;
const newKey = async (apiId: string): Promise<string> => (await fleet.ok('keys.createKey', { apiId })).keyId;
const newRootKey = async (...permissions: string[]): Promise<string> =>
  (await fleet.ok('rootKeys.createRootKey', { name: 'target', permissions })).rootKeyId;
/** No API of this name; not deleted and swept, which would take seconds each time. */
async function gone(apiId: string): Promise<string> {
  const { channel: _, recalls: __, ...kept } = apiKeys(apiId);
  await fleet.client.del(...Object.values(kept));
  return apiId;
}
/** An API of this name, whatever was done to it before. */
async function fresh(apiId: string): Promise<string> {
  if ((await fleet.admin('apis.getApi', { apiId })).status !== 200) {
    await fleet.ok('apis.createApi', { apiId: await gone(apiId), name: apiId });
  }
  return apiId;
}

/** Something for each operation to be done with on this API. `spent` by a call that was allowed. */
interface Target {
  readonly input: (apiId: string) => Promise<object>;
  readonly spent?: boolean;
}

let roles = 0;
const newRole = async (): Promise<string> =>
  (await fleet.ok('permissions.createRole', { name: `role-${++roles}` })).roleId;
const newPermission = async (): Promise<string> =>
  (await fleet.ok('permissions.createPermission', { name: `permission-${++roles}` })).permissionId;
const newIdentity = async () =>
  (await fleet.ok('identities.createIdentity', { externalId: `owner-${++roles}` })).identityId;
const OVERRIDDEN = { namespace: 'sms', identifier: 'ada' };
const newOverride = async () => {
  const address = fleet.controlPlanes[0]?.address;
  const authorization = `Bearer ${ROOT_KEY}`;
  const body = { ...OVERRIDDEN, limit: 5, duration: 60_000 };
  expect((await fleet.post(`${address}/v2/ratelimit.setOverride`, body, { authorization })).status).toBe(200);
  return OVERRIDDEN;
};
let endpoint: string | undefined;
/** An endpoint where nobody listens. There may be fifty. */
const newEndpoint = async () => {
  if (endpoint) await fleet.admin('webhooks.deleteEndpoint', { endpointId: endpoint });
  const input = { url: 'http://127.0.0.1:1/', events: ['webhook.test'] };
  endpoint = (await fleet.ok('webhooks.createEndpoint', input)).endpointId as string;
  return { endpointId: endpoint };
};
const onKey = async (apiId: string) => ({ keyId: await newKey(apiId) });
const onKeys = async (apiId: string) => ({ apiId, keyIds: [await newKey(apiId)] });
const TARGETS: Readonly<Record<string, Target>> = {
  createKey: { input: async (apiId) => ({ apiId }) },
  importKeys: { input: async (apiId) => ({ apiId, keys: [{ sha256: 'ab'.repeat(32) }] }) },
  updateKey: { input: async (apiId) => ({ ...(await onKey(apiId)), enabled: false }) },
  addPermissions: { input: async (apiId) => ({ ...(await onKey(apiId)), permissions: ['a'] }) },
  setPermissions: { input: async (apiId) => ({ ...(await onKey(apiId)), permissions: ['a'] }) },
  removePermissions: { input: async (apiId) => ({ ...(await onKey(apiId)), permissions: ['a'] }) },
  addRoles: { input: async (apiId) => ({ ...(await onKey(apiId)), roles: [{ id: await newRole() }] }) },
  setRoles: { input: async (apiId) => ({ ...(await onKey(apiId)), roles: [{ id: await newRole() }] }) },
  removeRoles: { input: async (apiId) => ({ ...(await onKey(apiId)), roles: [{ id: await newRole() }] }) },
  createRole: { input: async () => ({ name: `role-${++roles}` }), spent: true },
  getRole: { input: async () => ({ roleId: await newRole() }) },
  listRoles: { input: async () => ({}) },
  updateRole: { input: async () => ({ roleId: await newRole(), permissions: ['a'] }) },
  setRolePermissions: { input: async () => ({ roleId: await newRole(), permissions: ['a'] }) },
  setRoleLimits: { input: async () => ({ roleId: await newRole(), ratelimits: [] }) },
  getRolePropagation: {
    input: async () => {
      const roleId = await newRole();
      const { propagation } = await fleet.ok('permissions.setRolePermissions', { roleId, permissions: [] });
      return { roleId, sequence: String(propagation.sequence) };
    },
  },
  deleteRole: { input: async () => ({ roleId: await newRole() }), spent: true },
  createPermission: { input: async () => ({ name: `permission-${++roles}` }), spent: true },
  updatePermission: { input: async () => ({ permissionId: await newPermission(), name: 'A' }) },
  getPermission: { input: async () => ({ permissionId: await newPermission() }) },
  listPermissions: { input: async () => ({}) },
  deletePermission: { input: async () => ({ permissionId: await newPermission() }), spent: true },
  createIdentity: { input: async () => ({ externalId: `owner-${++roles}` }), spent: true },
  getIdentity: { input: async () => ({ identityId: await newIdentity() }) },
  listIdentities: { input: async () => ({}) },
  listKeysOfIdentity: { input: async () => ({ externalId: 'owner' }) },
  updateIdentity: { input: async () => ({ identityId: await newIdentity(), enabled: false }) },
  updateCredits: { input: async () => ({ identityId: await newIdentity(), op: 'set', value: 1 }) },
  getIdentityPropagation: {
    input: async () => {
      const identityId = await newIdentity();
      const { propagation } = await fleet.ok('identities.updateIdentity', { identityId, enabled: false });
      return { identityId, sequence: String(propagation.sequence) };
    },
  },
  deleteIdentity: { input: async () => ({ identityId: await newIdentity() }), spent: true },
  updateRemaining: { input: async (apiId) => ({ ...(await onKey(apiId)), op: 'set', value: 1 }) },
  rerollKey: { input: async (apiId) => ({ ...(await onKey(apiId)), expiration: 0 }), spent: true },
  deleteKey: { input: onKey, spent: true },
  updateKeys: { input: async (apiId) => ({ ...(await onKeys(apiId)), enabled: false }) },
  deleteKeys: { input: onKeys, spent: true },
  deleteAllKeys: { input: async (apiId) => ({ apiId: await fresh(apiId) }) },
  getKey: { input: onKey },
  getAllowances: { input: onKey },
  getIdentityAllowances: { input: async () => ({ identityId: await newIdentity() }) },
  getVerifications: { input: onKey },
  listRefusals: { input: onKey },
  listApiRefusals: { input: async (apiId) => ({ apiId: await fresh(apiId) }) },
  explainKey: { input: onKey },
  findVerdict: {
    async input(apiId) {
      const keyId = await newKey(apiId);
      const requestId = `of-${keyId}`;
      const refusal = { t: 1, c: 'DISABLED', r: requestId, v: 'verifier_1' };
      await fleet.client.hset(refusedRequestsKey(apiId), requestId, keyId);
      await fleet.client.hset(refusalsKey(apiId, keyId), '0', `${requestId} ${JSON.stringify(refusal)}`);
      return { requestId };
    },
  },
  getApiVerifications: { input: async (apiId) => ({ apiId: await fresh(apiId) }) },
  queryUsage: { input: async (apiId) => ({ apiId: await fresh(apiId) }) },
  whoami: { input: async (apiId) => ({ key: await newSecret(apiId) }) },
  getPropagation: {
    input: async (apiId) => {
      const { keyId } = await onKey(apiId);
      const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
      return { keyId, sequence: String(propagation.sequence) };
    },
  },
  getApiPropagation: {
    input: async (apiId) => {
      const api = await fresh(apiId);
      const { propagation } = await fleet.ok('apis.updateApi', { apiId: api, tokenAudiences: null });
      return { apiId: api, sequence: String(propagation.sequence) };
    },
  },
  listKeys: { input: async (apiId) => ({ apiId }) },
  listRefusedKeys: { input: async (apiId) => ({ apiId: await fresh(apiId) }) },
  'analytics.getVerifications': {
    input: async (apiId) => ({
      query: `SELECT COUNT(*) FROM key_verifications_v1 WHERE key_space_id = '${(await fresh(apiId)) && apiId}'`,
    }),
  },
  getApi: { input: async (apiId) => ({ apiId }) },
  listApis: { input: async () => ({}) },
  'ratelimit.setOverride': { input: async () => ({ ...OVERRIDDEN, limit: 5, duration: 60_000 }) },
  'ratelimit.getOverride': { input: newOverride },
  'ratelimit.listOverrides': { input: async () => ({ namespace: 'sms' }) },
  'ratelimit.deleteOverride': { input: newOverride, spent: true },
  createRootKey: { input: async () => ({ name: 'x', permissions: ['root.*.create_root_key'] }) },
  updateRootKey: {
    input: async () => ({ rootKeyId: await newRootKey('root.*.update_root_key'), enabled: true }),
  },
  deleteRootKey: {
    input: async () => ({ rootKeyId: await newRootKey('root.*.delete_root_key') }),
    spent: true,
  },
  listRootKeys: { input: async () => ({}) },
  listSessions: { input: async () => ({}) },
  endSession: {
    input: async () => {
      const { key } = await fleet.ok('rootKeys.createRootKey', {
        ...{ name: 'signed in', permissions: ['root.*.update_root_key'] },
      });
      await fleet.post(`${fleet.controlPlanes[0]?.address}/dashboard/session`, { rootKey: key });
      const { sessions } = await fleet.ok('rootKeys.listSessions');
      return { sessionId: sessions.at(-1).sessionId };
    },
    spent: true,
  },
  listFindings: { input: async () => ({}) },
  listVerifiers: { input: async () => ({}) },
  acceptHistory: { input: async () => ({}) },
  listEvents: { input: async () => ({}) },
  createEndpoint: {
    input: async () => {
      await newEndpoint();
      return { url: 'https://hooks.example.com/' };
    },
  },
  updateEndpoint: { input: async () => ({ ...(await newEndpoint()), name: 'Hooks' }) },
  getEndpoint: { input: newEndpoint },
  listEndpoints: { input: async () => ({}) },
  deleteEndpoint: { input: newEndpoint, spent: true },
  rotateSecret: { input: newEndpoint },
  listDeliveries: { input: newEndpoint },
  redeliver: {
    input: async () => {
      const { endpointId } = await newEndpoint();
      const fields = ['a', '{}', 'i', 'event_1', 't', 'key.created', 'k', 'key_1', 'e', '{}'];
      const id = await fleet.client.xadd(webhookKeys(endpointId).dead, '*', ...fields);
      return { endpointId, deliveryId: `d${id}` };
    },
  },
  test: { input: newEndpoint },
  createApi: { input: async (apiId) => ({ apiId: await gone(apiId), name: apiId }), spent: true },
  updateApi: { input: async (apiId) => ({ apiId: await fresh(apiId), defaultPrefix: 'x' }) },
  deleteApi: { input: async (apiId) => ({ apiId: await fresh(apiId) }), spent: true },
};

/** Permissions that the document asks for an operation: actions on its API, and actions at the root. */
function needsOf({ path, description }: Operation): { api: string[]; root: string[] } {
  const said = [...description.matchAll(/`?\b(api\.<apiId>|root\.\*)\.([a-z_]+)/g)];
  const needs = (service: string) =>
    said.filter(([, of]) => of?.startsWith(service)).map(([, , action]) => action ?? '');
  const { api, root } = { api: needs('api'), root: needs('root') };
  expect(api.length + root.length, `${path} says what it needs`).toBeGreaterThan(0);
  expect(API_ACTIONS).toEqual(expect.arrayContaining(api));
  expect(ROOT_ACTIONS).toEqual(expect.arrayContaining(root));
  return { api, root };
}

const of = (apiId: string, actions: readonly string[]) => actions.map((action) => `api.${apiId}.${action}`);
const ofRoot = (actions: readonly string[]) => actions.map((action) => `root.*.${action}`);
const SINGLES = [
  '*',
  ...of('*', API_ACTIONS),
  ...of(MINE, API_ACTIONS),
  ...of(THEIRS, API_ACTIONS),
  ...ofRoot(ROOT_ACTIONS),
];

/** Lists of permissions that tell a right check from a wrong one. */
function listsFor(needs: { api: string[]; root: string[] }): string[][] {
  const all = [...needs.api, ...needs.root];
  const otherActions = API_ACTIONS.filter((action) => !needs.api.includes(action));
  const otherRoot = ROOT_ACTIONS.filter((action) => !needs.root.includes(action));
  const [first = '', ...rest] = needs.api;
  return [
    // One alone: those that are needed always; of the others, which are refused all together below, a part.
    ...SINGLES.filter((one) => all.some((action) => one.endsWith(`.${action}`))).map((one) => [one]),
    ...share(SINGLES, 4).map((one) => [one]),
    // just what is needed, on that API, on all, on both, and on the wrong one
    [...of(MINE, needs.api), ...ofRoot(needs.root)],
    [...of('*', needs.api), ...ofRoot(needs.root)],
    [...of('*', needs.api.slice(0, 1)), ...of(MINE, rest), ...ofRoot(needs.root)],
    [...of(MINE, needs.api), ...of(THEIRS, API_ACTIONS), ...ofRoot(otherRoot), ...ofRoot(needs.root)],
    [...of(THEIRS, API_ACTIONS), ...ofRoot(otherRoot)],
    // all but what is needed
    [...of(MINE, otherActions), ...of('*', otherActions), ...ofRoot(otherRoot)],
    [...of(MINE, otherActions), ...of(THEIRS, API_ACTIONS), ...ofRoot(otherRoot)],
    // all but one of what is needed
    ...needs.api.map((missing) => [
      ...of('*', API_ACTIONS).filter((permission) => permission !== `api.*.${missing}`),
      ...of(THEIRS, [missing]),
      ...ofRoot(ROOT_ACTIONS),
    ]),
    ...needs.root.map((missing) => [
      ...of('*', API_ACTIONS),
      ...ofRoot(ROOT_ACTIONS).filter((permission) => permission !== `root.*.${missing}`),
    ]),
    // `*` first, in the middle and last
    ['*', ...of(THEIRS, [first || 'read_key'])],
    [...of(THEIRS, ['read_api']), '*', ...ofRoot(['read_fleet'])],
    [...ofRoot(['read_fleet']), ...of(THEIRS, ['read_api']), '*'],
  ].filter((list) => list.length > 0);
}

/** Operations that leave out what the caller may not read. */
const FILTERED = ['listApis', 'listKeysOfIdentity'];

/** Computes the outcome of a call on MINE from the list alone. */
function expected({ operationId }: Operation, needs: { api: string[]; root: string[] }, list: string[]) {
  const has = (permission: string) => list.includes('*') || list.includes(permission);
  const hasOnMine = (action: string) => has(`api.*.${action}`) || has(`api.${MINE}.${action}`);
  if (FILTERED.includes(operationId)) return 'OK'; // of which APIs, is another matter
  if (needs.root.every((action) => has(`root.*.${action}`)) && needs.api.every(hasOnMine)) return 'OK';
  // Whoever may not read a key learns of none of its requests.
  if (operationId === 'findVerdict') return 'NOT_FOUND';
  // An API that is not there yet is no secret.
  const hidden = needs.api.length > 0 && operationId !== 'createApi' && !API_ACTIONS.some(hasOnMine);
  return hidden ? 'NOT_FOUND' : 'INSUFFICIENT_PERMISSIONS';
}

/** The code of an answer of either generation, which has a title for it in the second. */
const codeOf = ({ status, body }: Answer) => {
  if (status === 200) return 'OK';
  return body.error.code ?? CODES_V2[status];
};
const CODES_V2: Readonly<Record<number, string>> = { 403: 'INSUFFICIENT_PERMISSIONS', 404: 'NOT_FOUND' };
/** Calls an operation as its document says. */
const call = ({ path }: Operation, input: object, rootKey = ROOT_KEY): Promise<Answer> =>
  path.startsWith('/v1/')
    ? fleet.admin(path.slice('/v1/'.length), input, { rootKey })
    : fleet.post(`${fleet.controlPlanes[0]?.address}${path}`, input, { authorization: `Bearer ${rootKey}` });

describe('every operation', () => {
  test('has an input, and permissions that exist', () => {
    expect(operations.map(({ operationId }) => operationId).sort()).toEqual(Object.keys(TARGETS).sort());
    const needed = operations.map(needsOf);
    // Two are asked for by verifiers.
    expect(new Set(['verify_key', ...needed.flatMap(({ api }) => api)])).toEqual(new Set(API_ACTIONS));
    expect(new Set(['check_rate_limit', ...needed.flatMap(({ root }) => root)])).toEqual(
      new Set(ROOT_ACTIONS),
    );
  });

  // Named here because the document is only there when the process runs; the test above holds the list to it.
  test.each(Object.keys(TARGETS))('%s is done by who has the permission only', async (operationId) => {
    const operation = operations.find((one) => one.operationId === operationId);
    const target = TARGETS[operationId];
    if (!operation || !target) throw new Error(`no ${operationId}`);
    const name = operation.path;
    const needs = needsOf(operation);
    let input: object | undefined;
    let done = 0;
    for (const list of listsFor(needs)) {
      const rootKey = await rootKeyWith(list);
      input ??= await target.input(MINE);
      const wanted = expected(operation, needs, list);
      const code = codeOf(await call(operation, input, rootKey));
      expect(code, `${name} with ${list.join(' ')}`).toBe(wanted);
      if (code === 'OK') done++;
      if (code === 'OK' && target.spent) input = undefined;
    }
    expect(done).toBeGreaterThan(3);
    // What was refused was not done: it still can be.
    expect(codeOf(await call(operation, input ?? (await target.input(MINE))))).toBe('OK');
  });
});

test('needs every API to create an unnamed one', async () => {
  const create = async (...permissions: string[]) =>
    codeOf(await fleet.admin('apis.createApi', { name: 'x' }, { rootKey: await rootKeyWith(permissions) }));
  for (const permission of ['*', 'api.*.create_api']) expect(await create(permission)).toBe('OK');
  expect(await create(...of(MINE, API_ACTIONS), ...ofRoot(ROOT_ACTIONS))).toBe('INSUFFICIENT_PERMISSIONS');
});

describe('an API that a root key has nothing to do with', () => {
  test('answers as one that is not there', async () => {
    const rootKey = await rootKeyWith([...of(THEIRS, API_ACTIONS), ...ofRoot(ROOT_ACTIONS)]);
    for (const operation of operations) {
      const { operationId, path } = operation;
      if (needsOf(operation).api.length === 0 || ['createApi', ...FILTERED].includes(operationId)) continue;
      const hidden = (await TARGETS[operationId]?.input(await fresh(MINE))) ?? {};
      const answer = await call(operation, hidden, rootKey);
      const absent = Object.fromEntries(
        Object.entries(hidden).map(([field, value]) => [
          field,
          { apiId: 'nowhere', keyId: 'key_nowhere', key: generateKey(16) }[field] ??
            (field === 'query' ? value.replace(MINE, 'nowhere') : value),
        ]),
      );
      const nowhere = await call(operation, absent, rootKey);
      const told = ({ status, body }: Answer) => [
        status,
        codeOf({ status, body } as Answer),
        (body.error.message ?? body.error.detail).replace(/^(api|key) \S+/, '$1 …'),
      ];
      expect(told(answer), path).toEqual(told(nowhere));
    }
  });

  test('is not listed, and those that it may read are', async () => {
    for (const apiId of [MINE, THEIRS]) await fresh(apiId);
    const shown = async (...permissions: string[]) => {
      const { apis } = await fleet.ok('apis.listApis', {}, { rootKey: await rootKeyWith(permissions) });
      return [MINE, THEIRS].filter((apiId) => apis.some(({ id }: { id: string }) => id === apiId));
    };
    for (const permission of SINGLES) {
      const [, api, action] = permission.split('.');
      const all = permission === '*' || permission === 'api.*.read_api';
      const one = action === 'read_api' && api ? [MINE, THEIRS].filter((apiId) => apiId === api) : [];
      expect(await shown(permission), permission).toEqual(all ? [MINE, THEIRS] : one);
    }
    const others = API_ACTIONS.filter((action) => action !== 'read_api');
    expect(await shown(...of('*', others), ...of(THEIRS, ['read_api']))).toEqual([THEIRS]);
  });
});

test('lists only those keys of an identity it reads', async () => {
  const externalId = 'matrix-customer';
  for (const apiId of [MINE, THEIRS]) {
    await fresh(apiId);
    await fleet.ok('keys.createKey', { apiId, externalId });
  }
  const listed = async (...permissions: string[]) => {
    const rootKey = await rootKeyWith(permissions);
    const { keys } = await fleet.ok('identities.listKeys', { externalId }, { rootKey });
    return keys.map(({ apiId }: { apiId: string }) => apiId);
  };
  for (const permission of SINGLES)
    expect(await listed(permission), permission).toEqual(permission === '*' ? [MINE, THEIRS] : []);
  for (const apiId of [MINE, THEIRS])
    expect(await listed(...of(apiId, ['read_key', 'read_api']))).toEqual([apiId]);
  expect(await listed('api.*.read_key', ...of(MINE, ['read_api']))).toEqual([MINE]);
  expect(await listed(...of(MINE, ['read_key']), 'api.*.read_api')).toEqual([MINE]);
  expect(await listed(...of(MINE, ['read_key']), ...of(THEIRS, ['read_api']))).toEqual([]);
  expect(await listed('api.*.read_key', 'api.*.read_api')).toEqual([MINE, THEIRS]);
});

describe('a root key that may create or change others', () => {
  const held = [
    ...ofRoot(['create_root_key', 'update_root_key', 'delete_root_key']),
    ...of('*', ['read_key']),
  ];
  const covered = [held, of(MINE, ['read_key']), ['api.*.read_key', ...of(THEIRS, ['read_key'])]];
  const beyond = SINGLES.filter((one) => !held.includes(one) && !one.endsWith('.read_key'));

  test('hands out what it has and nothing more', async () => {
    const rootKey = await rootKeyWith(held);
    const wish = async (permissions: readonly string[]) =>
      codeOf(await fleet.admin('rootKeys.createRootKey', { name: 'x', permissions }, { rootKey }));
    for (const permissions of covered) expect(await wish(permissions), permissions.join(' ')).toBe('OK');
    for (const more of beyond) {
      for (const list of [[more], [more, ...held], [...held, more], held.toSpliced(1, 0, more)]) {
        expect(await wish(list), list.join(' ')).toBe('INSUFFICIENT_PERMISSIONS');
      }
    }
  });

  test.each([
    ['disables', 'rootKeys.updateRootKey', { enabled: false }],
    ['deletes', 'rootKeys.deleteRootKey', {}],
  ])('%s only those that may no more than itself', async (_verb, operation, fields) => {
    const rootKey = await rootKeyWith(held);
    const disable = async (permissions: readonly string[]) => {
      const rootKeyId = await newRootKey(...permissions);
      return codeOf(await fleet.admin(operation, { rootKeyId, ...fields }, { rootKey }));
    };
    for (const permissions of covered) expect(await disable(permissions), permissions.join(' ')).toBe('OK');
    // By the same rule as above, which is tried with all.
    for (const more of share(beyond, 4)) {
      expect(await disable([more]), more).toBe('INSUFFICIENT_PERMISSIONS');
      expect(await disable([...held, more]), more).toBe('INSUFFICIENT_PERMISSIONS');
    }
  });
});
