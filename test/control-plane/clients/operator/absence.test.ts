import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { RELIST_MS, World } from './world.ts';

let fleet: Fleet;
const worlds: World[] = [];
beforeAll(async () => {
  fleet = await Fleet.start({ env: { API_AUTO_CREATE: 'false', FOREIGN_KEYS: 'true' } });
});
afterEach(() => {
  for (const world of worlds.splice(0)) world.stop();
});
afterAll(() => fleet.stop());

async function started(...keys: string[]): Promise<World> {
  const world = new World(fleet);
  worlds.push(world);
  world.start();
  await world.clock.until(() => world.condition(world.apiId, 'Ready', 'keyapis').status === 'True');
  await world.made(...keys);
  return world;
}
const missing = (world: World) => world.condition(world.apiId, 'AllKeysHaveObjects', 'keyapis');

describe('an object that is gone without having been deleted', () => {
  test.each(['while the operator runs', 'while it is away'] as const)('keeps its key: %s', async (when) => {
    const world = await started('ci', 'other');
    if (when === 'while it is away') world.stop();
    const [ci, other] = [world.secret('ci'), world.secret('other')];
    world.strip('apikeys', 'ci');
    if (when === 'while it is away') world.start();
    await world.clock.until(() => missing(world).reason === 'Missing', 2 * RELIST_MS);
    await world.clock.pass(3 * RELIST_MS);
    expect([await world.code(ci), await world.code(other)]).toEqual(['VALID', 'VALID']);
    expect(missing(world)).toMatchObject({ status: 'False' });
    expect(missing(world).message).toMatch(/^1 keys are accepted .*key_\w+ \(created 20\d\d-\d\d-\d\d, /);
    expect(world.operators.at(-1)?.missing).toBe(1);
  });

  test('is told after two lists, a minute apart', async () => {
    const world = await started('ci');
    await world.clock.until(() => missing(world).status === 'True', RELIST_MS);
    world.stop();
    world.strip('apikeys', 'ci');
    world.start();
    await world.clock.pass(50_000);
    expect(missing(world).status).not.toBe('False');
    await world.clock.until(() => missing(world).status === 'False', 30_000);
  });

  test('is missing no more when its key is deleted', async () => {
    const world = await started('ci');
    world.strip('apikeys', 'ci');
    await world.clock.until(() => missing(world).reason === 'Missing', 2 * RELIST_MS);
    const [{ keyId }] = (await world.keys()) as [{ keyId: string }];
    await fleet.ok('keys.deleteKey', { keyId });
    await world.clock.until(() => missing(world).status === 'True', 2 * RELIST_MS);
  });

  test('keeps its role', async () => {
    const world = await started();
    const name = `pro-${world.apiId}`;
    world.kube.put('keyroles', { metadata: { name, namespace: 'shop' }, spec: { permissions: ['a'] } });
    await world.clock.until(() => world.condition(name, 'Ready', 'keyroles').status === 'True');
    world.strip('keyroles', name);
    await world.clock.pass(3 * RELIST_MS);
    const roles: { name: string }[] = await fleet.ok('permissions.listRoles', {});
    expect(roles.map((role) => role.name)).toContain(name);
    expect(world.operators[0]?.missing).toBe(1);
  });
});

describe('an object that was being deleted', () => {
  test('takes its key with it, though somebody takes its finalizer off', async () => {
    const world = await started('ci');
    const secret = world.secret('ci');
    const { rootKey } = world;
    world.rootKey = 'not-a-root-key-0123456789abcdef0123456789';
    world.kube.remove('apikeys', 'shop', 'ci');
    await world.clock.pass(5000);
    world.strip('apikeys', 'ci');
    await world.clock.pass(5000);
    expect(await world.code(secret)).toBe('VALID');
    world.rootKey = rootKey;
    await world.clock.pass(600_000);
    expect(await world.code(secret)).toBe('NOT_FOUND');
    expect(world.operators[0]?.missing).toBe(0);
  });

  test.each(['keyroles', 'keyidentities'] as const)('one of %s too', async (plural) => {
    const world = await started();
    const spec = plural === 'keyroles' ? { permissions: ['a'] } : { apiIds: [world.apiId], meta: { a: 1 } };
    const name = `x-${world.apiId}-${plural}`;
    world.kube.put(plural, { metadata: { name, namespace: 'shop' }, spec });
    await world.clock.until(() => world.condition(name, 'Ready', plural).status === 'True');
    world.kube.remove(plural, 'shop', name);
    world.strip(plural, name);
    await world.clock.pass(20_000);
    expect(world.operators[0]?.missing).toBe(0);
    const listed = plural === 'keyroles' ? 'permissions.listRoles' : 'identities.listIdentities';
    expect(JSON.stringify(await fleet.ok(listed, {}))).not.toContain(name);
  });
});

describe('a finalizer', () => {
  test('stays on an object whose Secret has a key that was imported under no name', async () => {
    const world = await started();
    world.stop();
    // An object whose key Keyfence has, and which no status tells of.
    world.putSecret('own', `the-secret-of-${world.apiId}-number-1`);
    world.key('ci', { secretRefs: [{ name: 'own' }] });
    const { uid } = world.read('ci').metadata;
    world.kube.put('apikeys', {
      ...world.read('ci'),
      metadata: { name: 'ci', namespace: 'shop', uid, finalizers: ['keyfence.io/fence'] },
    });
    world.kube.remove('apikeys', 'shop', 'ci');
    world.start();
    await world.clock.until(() => world.read('ci') === undefined);
    // It was looked for by its secret, and nothing accepts that.
    expect(await world.code(`the-secret-of-${world.apiId}-number-1`)).toBe('NOT_FOUND');
    expect(await world.keys()).toEqual([]);
  });

  test('goes from an object whose secret another key has, and an Event tells that the key stays', async () => {
    const world = await started();
    const { key } = await fleet.ok('keys.createKey', { apiId: world.apiId });
    world.putSecret('own', key);
    world.key('ci', { secretRefs: [{ name: 'own' }] });
    await world.clock.until(() => world.condition('ci').reason === 'SecretInUse');
    world.kube.remove('apikeys', 'shop', 'ci');
    await world.clock.until(() => world.read('ci') === undefined);
    expect(await world.code(key)).toBe('VALID');
    expect(world.kube.all('events').map(({ reason }) => reason)).toContain('KeyStays');
  });

  test('goes without a call where the KeyApi says that Keyfence is gone for good', async () => {
    const world = await started('ci');
    const secret = world.secret('ci');
    world.rootKey = 'not-a-root-key-0123456789abcdef0123456789';
    world.kube.remove('apikeys', 'shop', 'ci');
    await world.clock.pass(10_000);
    expect(world.read('ci')).toBeDefined();
    const api = world.kube.read('keyapis', '', world.apiId);
    const annotations = { 'keyfence.io/forget': 'true' };
    world.kube.put('keyapis', { ...api, metadata: { ...api.metadata, annotations } });
    await world.clock.until(() => world.read('ci') === undefined, 600_000);
    expect(world.kube.all('events').map(({ reason }) => reason)).toContain('Forgotten');
    world.kube.remove('keyapis', '', world.apiId);
    await world.clock.until(() => world.kube.all('keyapis').length === 0, 600_000);
    expect(await world.code(secret)).toBe('VALID');
  });
});

test('the deletion of an object leaves a key that is not its own any more', async () => {
  const world = await started('ci', 'other');
  const ci = world.secret('ci');
  const { keyId } = await fleet.ok('keys.whoami', { key: ci });
  // The operator has listed the keys before.
  await fleet.ok('keys.updateKey', { keyId, managedBy: 'another set' });
  world.kube.remove('apikeys', 'shop', 'ci');
  await world.clock.pass(2 * RELIST_MS);
  expect(await world.code(ci)).toBe('VALID');
});
