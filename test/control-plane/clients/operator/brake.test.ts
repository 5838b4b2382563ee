import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { World } from './world.ts';

let fleet: Fleet;
const worlds: World[] = [];
beforeAll(async () => {
  fleet = await Fleet.start({ env: { API_AUTO_CREATE: 'false' } });
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
const names = (count: number) => Array.from({ length: count }, (_, i) => `k${i}`);
const left = (world: World) => world.kube.all('apikeys').length;
const annotate = (world: World, annotations: object) => {
  const api = world.kube.read('keyapis', '', world.apiId);
  world.kube.put('keyapis', { ...api, metadata: { ...api.metadata, annotations } });
};
const tokenOf = (world: World) => {
  const { message = '' } = world.condition(world.apiId, 'DeletionsPass', 'keyapis');
  return /keyfence\.io\/confirm=(\w+)$/.exec(message)?.[1] ?? '';
};
/** Deletes objects, and waits until all that may go are gone. */
const deleted = async (world: World, which: readonly string[]) => {
  for (const name of which) world.kube.remove('apikeys', 'shop', name);
  await world.clock.pass(20_000);
};

describe('of many objects that are deleted at once', () => {
  test('ten take their keys with them, and the others wait for a person', async () => {
    const world = await started(...names(25));
    await deleted(world, names(25));
    expect(left(world)).toBe(15);
    expect(await world.keys()).toHaveLength(15);
    const [waiting] = world.kube.all('apikeys');
    expect(world.condition(waiting.metadata.name)).toMatchObject({
      status: 'False',
      reason: 'TooManyDeleted',
    });
    expect(world.condition(waiting.metadata.name).message).toContain('set spec.enabled: false');
    expect(await world.code(world.secret(waiting.metadata.name))).toBe('VALID');
    await world.clock.pass(300_000);
    annotate(world, { 'keyfence.io/confirm': 'abcdef0123' });
    await world.clock.pass(20_000);
    expect(left(world)).toBe(15);
    annotate(world, { 'keyfence.io/confirm': tokenOf(world) });
    await world.clock.until(() => left(world) === 0, 60_000);
    expect(await world.keys()).toEqual([]);
  });

  test('a fifth of many goes', async () => {
    const world = await started(...names(60));
    await deleted(world, names(60));
    expect(left(world)).toBe(48);
  });

  test('a restart forgets nothing', async () => {
    const world = await started(...names(15));
    await deleted(world, names(12));
    expect(left(world)).toBe(5);
    for (let life = 0; life < 3; life++) {
      world.stop();
      world.start();
      await world.clock.pass(20_000);
    }
    expect(left(world)).toBe(5);
    // The window is over, and it was all that wait.
    await world.clock.until(() => left(world) === 3, 700_000);
  });

  test('a token is for those that waited when it was given', async () => {
    const world = await started(...names(25));
    await deleted(world, names(20));
    await world.clock.pass(300_000);
    const token = tokenOf(world);
    await deleted(world, ['k20', 'k21']);
    annotate(world, { 'keyfence.io/confirm': token });
    await world.clock.pass(60_000);
    expect(left(world)).toBe(15);
  });

  test('one that waits is stopped by its spec', async () => {
    const world = await started(...names(15));
    await deleted(world, names(15));
    const [{ metadata }] = world.kube.all('apikeys');
    const secret = world.secret(metadata.name);
    world.key(metadata.name, { enabled: false });
    await world.clock.pass(10_000);
    expect(await world.code(secret)).toBe('DISABLED');
  });

  test('those with on-delete=orphan wait for nobody', async () => {
    const world = await started(...names(15));
    for (const name of names(15)) {
      const annotations = { 'keyfence.io/on-delete': 'orphan' };
      world.kube.put('apikeys', {
        ...world.read(name),
        metadata: { ...world.read(name).metadata, annotations },
      });
    }
    await deleted(world, names(15));
    expect(left(world)).toBe(0);
    expect(await world.keys()).toHaveLength(15);
  });

  test('whose kind goes, none takes its key with it', async () => {
    const world = await started(...names(5));
    for (const kind of ['apikeys', 'keyapis']) {
      const metadata = { name: `${kind}.keyfence.io`, finalizers: ['customresourcecleanup'] };
      world.kube.put('customresourcedefinitions', { metadata });
      world.kube.remove('customresourcedefinitions', '', `${kind}.keyfence.io`);
    }
    const secret = world.secret('k0');
    await deleted(world, names(5));
    world.kube.remove('keyapis', '', world.apiId);
    await world.clock.until(() => world.kube.all('keyapis').length === 0, 60_000);
    expect(left(world)).toBe(0);
    expect(await world.keys()).toHaveLength(5);
    expect(await world.code(secret)).toBe('VALID');
  });
});

describe('a KeyApi', () => {
  test('with keys that no object declares goes only with their number', async () => {
    const world = await started();
    const { key } = await fleet.ok('keys.createKey', { apiId: world.apiId });
    await fleet.ok('keys.createKey', { apiId: world.apiId });
    world.kube.remove('keyapis', '', world.apiId);
    await world.clock.pass(30_000);
    expect(world.condition(world.apiId, 'Ready', 'keyapis')).toMatchObject({
      status: 'False',
      reason: 'InUse',
    });
    expect(world.condition(world.apiId, 'Ready', 'keyapis').message).toContain('has 2 keys');
    annotate(world, { 'keyfence.io/delete-all-keys': '1' });
    await world.clock.pass(30_000);
    expect(await world.code(key)).toBe('VALID');
    annotate(world, { 'keyfence.io/delete-all-keys': '2' });
    await world.clock.until(() => world.kube.all('keyapis').length === 0, 60_000);
    expect(await world.code(key)).toBe('NOT_FOUND');
  });

  test('stays while a namespace that is not the operator’s has objects with keys', async () => {
    const world = await started();
    world.kube.put('apikeys', {
      metadata: { name: 'far', namespace: 'far', finalizers: ['keyfence.io/fence'] },
      spec: { api: world.apiId },
    });
    world.kube.remove('keyapis', '', world.apiId);
    await world.clock.pass(30_000);
    expect(world.condition(world.apiId, 'Ready', 'keyapis').reason).toBe('InUse');
  });
});
