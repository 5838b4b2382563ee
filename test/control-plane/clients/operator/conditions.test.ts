import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
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

test('an object that is made with a wrong root key says so', async () => {
  const world = await started();
  const { rootKey } = world;
  world.rootKey = 'not-a-root-key-0123456789abcdef0123456789';
  world.key('ci');
  await world.clock.until(() => world.condition('ci').reason === 'Unauthorized', 5000);
  expect(world.condition('ci').status).toBe('Unknown');
  world.rootKey = rootKey;
  await world.clock.until(() => world.isReady('ci'), 310_000);
});

test('an object that is deleted without the right to it says so, and goes soon after the right is there', async () => {
  const world = await started('ci');
  const { rootKey } = world;
  const { key } = await fleet.ok('rootKeys.createRootKey', {
    name: 'narrow',
    permissions: ['read_key', 'read_api', 'create_key'].map((action) => `api.${world.apiId}.${action}`),
  });
  world.rootKey = key;
  world.kube.remove('apikeys', 'shop', 'ci');
  await world.clock.until(() => world.condition('ci').reason === 'NotPermitted', 5000);
  // However long it was in vain.
  await world.clock.pass(3_600_000);
  world.rootKey = rootKey;
  await world.clock.until(() => world.read('ci') === undefined, 31_000);
});

test('an object waits from the first moment', async () => {
  const world = await started();
  const seen: string[] = [];
  world.key('ci');
  await world.clock.until(() => {
    const { status, reason } = world.condition('ci');
    if (status && seen.at(-1) !== `${status} ${reason}`) seen.push(`${status} ${reason}`);
    return world.isReady('ci');
  });
  expect(world.kube.all('events').map(({ reason }) => reason)).not.toContain('Waiting');
  expect(seen.at(-1)).toBe('True Imported');
});
