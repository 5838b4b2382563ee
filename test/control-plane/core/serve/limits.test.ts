import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BootstrapKeys } from '../../../../control-plane/core/callers/bootstrap-keys.ts';
import { auditStream, callCounter, rootKeyRecord } from '../../../../shared/redis/redis-keys.ts';
import { hashSecret } from '../../../../shared/rules/key-format.ts';
import { type Answer, Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { metric } from '../../../harness/metrics.ts';
import { Document } from '../../../harness/openapi.ts';
import { blockFor } from '../../../harness/waiting.ts';

const [BOOTSTRAP = ''] = new BootstrapKeys([ROOT_KEY]).ids;

let fleet: Fleet;
let base: string;

beforeAll(async () => {
  const env = { ROOT_KEY_CALLS_PER_MINUTE: '20', FAILURES_PER_MINUTE: '5', TRUSTED_PROXIES: '127.0.0.1' };
  fleet = await Fleet.start({ verifiers: 0, env });
  await fleet.addControlPlane(env);
  base = fleet.controlPlanes[0]?.address ?? '';
});
afterAll(() => fleet.stop());

/** The bootstrap key's limits are for nobody to wait for. */
const forgetCounts = () =>
  fleet.client.del(callCounter(`${BOOTSTRAP}:GET`), callCounter(`${BOOTSTRAP}:POST`));
const rootKeyWith = async (...permissions: string[]): Promise<string> => {
  await forgetCounts();
  return (await fleet.ok('rootKeys.createRootKey', { name: 'n', permissions })).key;
};
const newKey = async (): Promise<string> => {
  await forgetCounts();
  return (await fleet.ok('keys.createKey', { apiId: 'limited' })).keyId;
};
const counted = (series: string) => metric(fleet.controlPlanes[0]?.adminAddress, series);
const strangerFrom = (address: string, rootKey = 'nobody-knows-this-root-key-00000000') =>
  fleet.get(`${base}/v1/apis.listApis`, { authorization: `Bearer ${rootKey}`, 'x-forwarded-for': address });

function expectLimited(answer: Answer | undefined) {
  expect(answer?.status).toBe(429);
  expect(answer?.body.error.code).toBe('RATE_LIMITED');
  const seconds = Number(answer?.headers['retry-after']);
  expect(seconds).toBeGreaterThanOrEqual(1);
  expect(seconds).toBeLessThanOrEqual(60);
}

describe('a root key over its limit', () => {
  test('is refused with 429 at every control plane', async () => {
    const [greedy, other] = [await rootKeyWith('api.*.read_api'), await rootKeyWith('api.*.read_api')];
    for (let i = 0; i < 20; i++) await fleet.ok('apis.listApis', {}, { rootKey: greedy, at: i % 2 });
    for (const at of [0, 1]) expectLimited(await fleet.admin('apis.listApis', {}, { rootKey: greedy, at }));
    await fleet.ok('apis.listApis', {}, { rootKey: other });
  });

  test('is counted call by call, also all at once', async () => {
    const rootKey = await rootKeyWith('api.*.read_api');
    const answers = await Promise.all(
      Array.from({ length: 30 }, (_, i) => fleet.admin('apis.listApis', {}, { rootKey, at: i % 2 })),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(20);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(10);
  });

  test('by reading too much can still disable a key', async () => {
    const keyId = await newKey();
    const rootKey = await rootKeyWith('api.*.read_key', 'api.*.update_key');
    for (let i = 0; i < 21; i++) await fleet.admin('keys.getKey', { keyId }, { rootKey });
    expectLimited(await fleet.admin('keys.getKey', { keyId }, { rootKey }));
    await fleet.ok('keys.updateKey', { keyId, enabled: false }, { rootKey });
  });

  test('by changes can still stop keys and customers', async () => {
    const keyId = await newKey();
    const { rootKeyId, key: other } = await fleet.ok('rootKeys.createRootKey', {
      ...{ name: 'other', permissions: ['api.limited.read_key'] },
    });
    await fleet.ok('identities.createIdentity', { externalId: `of ${keyId}`, waitMs: 0 });
    const rootKey = await rootKeyWith('*');
    const ask = (operation: string, input: object) => fleet.admin(operation, input, { rootKey });
    for (let i = 0; i < 20; i++) await ask('keys.updateKey', { keyId, name: `${i}` });
    for (const [operation, input] of [
      ['keys.updateKey', { keyId, enabled: true }],
      ['keys.createKey', { apiId: 'limited', enabled: false }],
      ['rootKeys.updateRootKey', { rootKeyId, enabled: true }],
    ] as const)
      expectLimited(await ask(operation, input));
    for (const [operation, input] of [
      ['keys.updateKey', { keyId, enabled: false }],
      ['identities.updateIdentity', { externalId: `of ${keyId}`, enabled: false, waitMs: 0 }],
      ['rootKeys.updateRootKey', { rootKeyId, enabled: false }],
      ['keys.deleteKey', { keyId }],
    ] as const) {
      const { status, headers } = await ask(operation, input);
      expect([operation, status, headers['retry-after']]).toEqual([operation, 200, undefined]);
    }
    expect((await fleet.admin('apis.listApis', {}, { rootKey: other })).status).toBe(401);
    for (let i = 4; i < 20; i++) expect((await ask('keys.deleteKey', { keyId })).status).toBe(200);
    expectLimited(await ask('keys.deleteKey', { keyId }));
    // What nobody can read may not stop anything, and would be written into the audit log.
    const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
    const url = `${fleet.controlPlanes[0]?.address}/v1/keys.deleteKey`;
    expectLimited(await fleet.send(url, { method: 'POST', headers, body: '{bad' }));
  });

  test('may call again when the minute is over', async () => {
    const rootKey = await rootKeyWith('api.*.read_api');
    for (let i = 0; i < 21; i++) await fleet.admin('apis.listApis', {}, { rootKey });
    expectLimited(await fleet.admin('apis.listApis', {}, { rootKey }));
    const counters = await fleet.client.keys(`${callCounter('root_')}*:GET`);
    // A machine that is busy may let the second pass before the call; then it counts from one again.
    await fleet.until(async () => {
      for (const counter of counters) await fleet.client.pexpire(counter, 1000);
      const { status, headers } = await fleet.admin('apis.listApis', {}, { rootKey });
      if (status === 429) expect(headers['retry-after']).toBe('1');
      return status === 429;
    });
    for (const counter of counters) await fleet.client.pexpire(counter, 1);
    await fleet.until(async () => (await fleet.admin('apis.listApis', {}, { rootKey })).status === 200);
  });
});

describe('an address without a valid root key', () => {
  test('a wrong root key gets 401, and 429 once the address is over its limit', async () => {
    const answers: Answer[] = [];
    for (let i = 0; i < 7; i++) answers.push(await strangerFrom('198.51.100.1'));
    expect(answers.map(({ status }) => status)).toEqual([401, 401, 401, 401, 401, 429, 429]);
    expectLimited(answers.at(-1));
    expect((await strangerFrom('198.51.100.2')).status).toBe(401);
  });

  test('wrong root keys do not lock out a valid one from the same address', async () => {
    for (let i = 0; i < 7; i++) await strangerFrom('198.51.100.3');
    await forgetCounts();
    expect((await strangerFrom('198.51.100.3', ROOT_KEY)).status).toBe(200);
  });

  test('costs Redis nothing once it is over its limit', async () => {
    const address = '198.51.100.5';
    for (let i = 0; i < 6; i++) await strangerFrom(address);
    await fleet.client.del(callCounter(`address:${address}`));
    expectLimited(await strangerFrom(address));
    expect(await fleet.client.exists(callCounter(`address:${address}`))).toBe(0);
  });

  test('costs no look-up without our checksum', async () => {
    const madeUp = 'kfroot_0000000000000000000000000000000000000000';
    await fleet.client.hset(rootKeyRecord(hashSecret(madeUp)), { id: 'root_none', enabled: '1' });
    expect((await strangerFrom('198.51.100.6', madeUp)).status).toBe(401);
  });

  test('counts once for its whole IPv6 network', async () => {
    for (let i = 0; i < 6; i++) await strangerFrom(`2001:db8:1:1::${i}`);
    expectLimited(await strangerFrom('2001:db8:1:1:ffff::1'));
    expect((await strangerFrom('2001:db8:1:2::1')).status).toBe(401);
  });

  test('fills the audit log only up to its limit', async () => {
    for (let i = 0; i < 20; i++) await strangerFrom('198.51.100.4');
    const events = await fleet.client.xrange(auditStream('refused'), '-', '+');
    const mine = events.filter(([, [, event]]) => JSON.parse(event ?? '{}').by.address === '198.51.100.4');
    expect(mine).toHaveLength(5);
  });

  test('is not believed unless a trusted proxy', async () => {
    const trusting = await fleet.addControlPlane({ FAILURES_PER_MINUTE: '5' });
    const ask = (forwarded: string) =>
      fleet.get(`${trusting.address}/v1/apis.listApis`, { 'x-forwarded-for': forwarded });
    for (let i = 0; i < 6; i++) await ask(`203.0.113.${i}`);
    expectLimited(await ask('203.0.113.99'));
  });
});

test('every call passes while Redis cannot count', async () => {
  const keyId = await newKey();
  await forgetCounts();
  for (const kind of ['GET', 'POST'])
    await fleet.client.lpush(callCounter(`${BOOTSTRAP}:${kind}`), 'not a number');
  const unchecked = await counted('keyfence_rate_limited_total{limit="unchecked"}');
  await fleet.ok('apis.listApis', {});
  await fleet.ok('keys.createKey', { apiId: 'limited' });
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(await counted('keyfence_rate_limited_total{limit="unchecked"}')).toBe(unchecked + 3);
  await forgetCounts();
});

/** What may stop a stolen key, or a caller. */
const VITAL = [
  ...['apis.deleteApi', 'apis.deleteKeys', 'keys.addPermissions', 'keys.deleteKey', 'keys.deleteKeys'],
  ...['keys.removePermissions', 'keys.rerollKey', 'keys.setPermissions', 'keys.updateKey', 'keys.updateKeys'],
  ...['keys.updateRemaining', 'rootKeys.updateRootKey', 'keys.addRoles', 'keys.removeRoles', 'keys.setRoles'],
  ...['permissions.deleteRole', 'permissions.setRolePermissions'],
  ...['identities.updateIdentity', 'identities.deleteIdentity'],
];

test('load refuses calls but those that stop keys', async () => {
  const keyId = await newKey();
  const busy = await fleet.addControlPlane({ EVENT_LOOP_DELAY_MS_MAX: '1' });
  const at = fleet.controlPlanes.indexOf(busy);
  const { operations } = new Document((await fleet.get(`${busy.address}/openapi.json`)).body);
  const names = operations.map(({ path }) => path.replace('/v1/', ''));
  expect(names).toEqual(expect.arrayContaining(VITAL));
  const isShed = async (name: string) => (await fleet.admin(name, {}, { at })).status === 503;
  /** Which of these calls are refused at times at which others are, before them and after; until all of `wanted` were. */
  const shedOf = async (names: readonly string[], wanted: readonly string[]) => {
    const shed = new Set<string>();
    await fleet.until(async () => {
      await forgetCounts();
      if (!(await isShed('apis.listApis'))) return false;
      const answers = await Promise.all(names.map(async (name) => ({ name, shed: await isShed(name) })));
      for (const each of answers) if (each.shed) shed.add(each.name);
      return (await isShed('apis.listApis')) && wanted.every((name) => shed.has(name));
    });
    return names.filter((name) => shed.has(name));
  };
  const blocked = setInterval(() => blockFor(30), 1);
  try {
    await fleet.until(() => isShed('keys.getKey'));
    const { status, body, headers } = await fleet.admin('keys.getKey', { keyId }, { at });
    expect([status, body.error.code, headers['retry-after']]).toEqual([503, 'SERVICE_UNAVAILABLE', '1']);
    const others = names.filter((name) => /\.(?:get|list|create|import)/.test(name));
    expect(await shedOf([...VITAL, ...others], others)).toEqual(others);
    await fleet.ok('keys.updateKey', { keyId, enabled: false }, { at });
    expect(await metric(busy.adminAddress, 'keyfence_shed_total')).toBeGreaterThan(others.length);
  } finally {
    clearInterval(blocked);
  }
});

test('every answer forbids framing and scripts', async () => {
  for (const path of ['/docs/errors', '/v1/apis.listApis', '/nowhere']) {
    const { headers } = await fleet.get(base + path);
    expect(headers).toMatchObject({
      'content-security-policy': expect.stringContaining("default-src 'none'"),
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
    });
  }
});
