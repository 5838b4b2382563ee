import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../../../harness/fleet.ts';
import { FakeKube } from './fake-kube.ts';
import { RELIST_MS, World } from './world.ts';

// biome-ignore lint/suspicious/noExplicitAny: objects of every kind
type Any = any;

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

/** Objects as a backup has them: without what the API server gives, and without their status. */
const backup = (world: World, ...plurals: string[]): [plural: string, object: Any][] =>
  plurals.flatMap((plural) =>
    world.kube.all(plural).map((object): [string, Any] => {
      const { uid: _uid, resourceVersion: _version, generation: _generation, ...rest } = object.metadata;
      const { deletionTimestamp: _deleted, creationTimestamp: _created, ...metadata } = rest;
      const { status: _status, ...whole } = object;
      return [plural, structuredClone({ ...whole, metadata })];
    }),
  );
const restore = (world: World, objects: readonly [plural: string, object: Any][]) => {
  for (const [plural, object] of objects) world.kube.put(plural, object);
};
/** Loses a namespace's objects, as a cluster does: nobody deletes them. */
const lose = (world: World) => {
  for (const plural of ['apikeys', 'keyroles', 'keyidentities', 'secrets'])
    for (const { metadata } of world.kube.all(plural)) world.strip(plural, metadata.name, metadata.namespace);
};
const keyIds = async (world: World) => (await world.keys()).map(({ keyId }) => keyId).sort();
const events = (world: World) => world.kube.all('events').map(({ reason }) => reason);

describe.each(['while the operator runs', 'while it is away'] as const)('a restore %s', (when) => {
  test('gives each object its key back, and callers go on', async () => {
    const world = await started('a', 'b');
    const [ids, secrets] = [await keyIds(world), [world.secret('a'), world.secret('b')]];
    const objects = backup(world, 'secrets', 'apikeys');
    if (when === 'while it is away') world.stop();
    lose(world);
    if (when === 'while the operator runs') await world.clock.pass(10_000);
    restore(world, objects);
    if (when === 'while it is away') world.start();
    await world.clock.until(() => ['a', 'b'].every(world.isReady), RELIST_MS);
    expect(await keyIds(world)).toEqual(ids);
    expect([world.secret('a'), world.secret('b')]).toEqual(secrets);
    for (const secret of secrets) expect(await world.code(secret)).toBe('VALID');
    expect(events(world).filter((reason) => reason === 'TakenBack')).toHaveLength(2);
    // The Secrets are theirs again, or Kubernetes would delete them.
    expect(world.kube.read('secrets', 'shop', 'a').metadata.ownerReferences[0].uid).toBe(
      world.read('a').metadata.uid,
    );
    await world.clock.pass(3 * RELIST_MS);
    expect(world.operators.at(-1)?.missing).toBe(0);
    world.kube.remove('apikeys', 'shop', 'a');
    await world.clock.until(() => world.read('a') === undefined);
    expect(await world.code(secrets[0] ?? '')).toBe('NOT_FOUND');
  });

  test('without the Secrets makes new keys, and the old ones stay accepted', async () => {
    const world = await started('a');
    const old = world.secret('a');
    const objects = backup(world, 'apikeys');
    if (when === 'while it is away') world.stop();
    lose(world);
    restore(world, objects);
    if (when === 'while it is away') world.start();
    await world.clock.until(() => world.isReady('a') && world.operators.at(-1)?.missing === 1, 2 * RELIST_MS);
    expect(world.secret('a')).not.toBe(old);
    expect([await world.code(old), await world.code(world.secret('a'))]).toEqual(['VALID', 'VALID']);
  });
});

test('a key that was disabled by hand is disabled after a restore, until its spec changes', async () => {
  const world = await started('a');
  const [secret, [keyId = '']] = [world.secret('a'), (await keyIds(world)) as string[]];
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  const objects = backup(world, 'secrets', 'apikeys');
  world.stop();
  lose(world);
  restore(world, objects);
  world.start();
  await world.clock.until(() => world.isReady('a'), RELIST_MS);
  await world.clock.pass(2 * RELIST_MS);
  expect(await world.code(secret)).toBe('DISABLED');
  expect(world.condition('a', 'InSync')).toMatchObject({ status: 'False', reason: 'ChangedByHand' });
  world.key('a', { name: 'again' });
  await world.clock.until(() => world.condition('a', 'InSync').status === 'True');
  expect(await world.code(secret)).toBe('VALID');
});

test('a key that was disabled by hand is disabled still when its Secret comes back', async () => {
  const world = await started();
  const [one, two] = [`secret-one-of-${world.apiId}-long`, `secret-two-of-${world.apiId}-long`];
  world.putSecret('own', one);
  world.key('a', { secretRefs: [{ name: 'own' }], graceSeconds: 7200 });
  await world.clock.until(() => world.isReady('a'));
  const [keyId = ''] = (await keyIds(world)) as string[];
  world.putSecret('own', two);
  await world.clock.until(() => world.read('a').status.retired.length === 1);
  await fleet.ok('keys.updateKey', { keyId, enabled: false });
  await world.clock.pass(2 * RELIST_MS);
  world.putSecret('own', one);
  await world.clock.until(() => world.read('a').status.keyId === keyId, RELIST_MS);
  await world.clock.pass(2 * RELIST_MS);
  expect(await world.code(one)).toBe('DISABLED');
  const { expires } = await fleet.ok('keys.getKey', { keyId });
  expect(expires).toBeUndefined();
});

test('a secret that changes has its key at once', async () => {
  const world = await started();
  world.putSecret('own', `secret-one-of-${world.apiId}-long`);
  world.key('a', { secretRefs: [{ name: 'own' }] });
  await world.clock.until(() => world.isReady('a'), 1000);
  world.putSecret('own', `secret-two-of-${world.apiId}-long`);
  await world.clock.until(() => world.read('a').status.retired.length === 1, 1000);
  expect(world.isReady('a')).toBe(true);
  expect(events(world)).not.toContain('Refused');
});

test('a restored object that is deleted takes its key with it', async () => {
  const world = await started('a');
  const secret = world.secret('a');
  const objects = backup(world, 'secrets', 'apikeys');
  world.stop();
  lose(world);
  restore(world, objects);
  world.kube.remove('apikeys', 'shop', 'a');
  world.start();
  await world.clock.until(() => world.read('a') === undefined, RELIST_MS);
  expect(await world.code(secret)).toBe('NOT_FOUND');
});

test('an object of another name takes no key back', async () => {
  const world = await started('a');
  const [ids, secret] = [await keyIds(world), world.secret('a')];
  world.stop();
  lose(world);
  world.putSecret('own', secret);
  world.key('b', { secretRefs: [{ name: 'own' }] });
  world.start();
  await world.clock.until(() => world.condition('b').reason === 'SecretInUse', RELIST_MS);
  await world.clock.pass(2 * RELIST_MS);
  expect(world.condition('b').reason).toBe('SecretInUse');
  expect(await keyIds(world)).toEqual(ids);
});

test('another cluster takes keys only where its administrator says so', async () => {
  const world = await started('a');
  const [ids, secret] = [await keyIds(world), world.secret('a')];
  const objects = backup(world, 'secrets', 'apikeys');
  const { installation } = world.kube.read('configmaps', 'keyfence', 'keyfence-operator').data;
  world.stop();
  world.kube = new FakeKube();
  world.fill(world.kube, 'second');
  restore(world, objects);
  world.start();
  await world.clock.until(() => world.condition('a').reason === 'OtherInstallation', RELIST_MS);
  expect(world.condition('a').message).toContain(installation);
  expect(await world.code(secret)).toBe('VALID');
  const api = world.kube.read('keyapis', '', world.apiId);
  world.kube.put('keyapis', { ...api, spec: { ...api.spec, takeFrom: [installation] } });
  await world.clock.until(() => world.isReady('a'), 2 * RELIST_MS);
  expect(await keyIds(world)).toEqual(ids);
  expect(await world.code(secret)).toBe('VALID');
});

test('a role, a customer and an API are taken back too', async () => {
  const world = await started();
  const [role, customer] = [`pro-${world.apiId}`, `acme-${world.apiId}`];
  const spec = { apiIds: [world.apiId], meta: { plan: 'pro' } };
  world.kube.put('keyroles', { metadata: { name: role, namespace: 'shop' }, spec: { permissions: ['a'] } });
  world.kube.put('keyidentities', { metadata: { name: customer, namespace: 'shop' }, spec });
  const areReady = () =>
    world.condition(role, 'Ready', 'keyroles').status === 'True' &&
    world.condition(customer, 'Ready', 'keyidentities').status === 'True';
  await world.clock.until(areReady);
  const objects = backup(world, 'keyapis', 'keyroles', 'keyidentities');
  world.stop();
  lose(world);
  world.strip('keyapis', world.apiId, '');
  restore(world, objects);
  world.start();
  await world.clock.until(areReady, RELIST_MS);
  await world.clock.until(
    () => world.condition(world.apiId, 'Ready', 'keyapis').reason === 'Created',
    RELIST_MS,
  );
  expect(events(world).filter((reason) => reason === 'TakenBack')).toHaveLength(2);
  await world.clock.pass(2 * RELIST_MS);
  expect(world.operators.at(-1)?.missing).toBe(0);
});

test('killed at any call of a restore, all have their keys in the end', async () => {
  let calls = Number.POSITIVE_INFINITY;
  for (let at = 0; at < Math.min(calls, 60); at += 1.5) {
    const world = await started('a', 'b');
    const [ids, secret, stopped] = [await keyIds(world), world.secret('a'), world.secret('b')];
    const [{ keyId }] = (await world.keys()).filter(
      (key) => key['keyId'] !== world.read('a').status.keyId,
    ) as Any;
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    const objects = backup(world, 'secrets', 'apikeys');
    world.stop();
    lose(world);
    restore(world, objects);
    const begun = world.calls;
    world.killAt = begun + at;
    world.start();
    await world.clock.pass(RELIST_MS);
    if (world.calls < world.killAt) calls = Math.min(calls, world.calls - begun);
    world.killAt = Number.POSITIVE_INFINITY;
    world.start();
    await world.clock.until(() => ['a', 'b'].every(world.isReady), 2 * RELIST_MS);
    expect(await keyIds(world), `killed at ${at}`).toEqual(ids);
    expect([await world.code(secret), await world.code(stopped)], `killed at ${at}`).toEqual([
      'VALID',
      'DISABLED',
    ]);
    world.stop();
  }
});
