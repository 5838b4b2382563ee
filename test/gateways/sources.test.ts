import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { describeGateways } from './gateways.ts';
import { World } from './world.ts';

describe.each([
  [
    'bearer',
    (key: string) => ['Authorization', `Bearer ${key}`],
    ['X-Api-Key', "the API's own"],
    'x-api-key',
  ],
  [
    'x-api-key',
    (key: string) => ['X-Api-Key', key],
    ['Authorization', "Bearer the.API's.own"],
    'authorization',
  ],
] as const)('where keys come by %s alone', (source, showing, own, name) => {
  let world: World;
  let key: string;
  beforeAll(async () => {
    world = await World.start({ CREDENTIAL_SOURCES: source });
    ({ key } = await world.fleet.ok('keys.createKey', { apiId: world.around.API_ID }));
  });
  afterAll(() => world.stop());

  describeGateways((gateway) => {
    test(`${name} is the API's own: it reaches the API, and the key does not`, async () => {
      const { status } = await world.decided(gateway, { headers: [...showing(key), ...own] });
      const [seen] = world.upstream.take();
      expect({ status, own: seen?.headersDistinct[name] }).toEqual({ status: 200, own: [own[1]] });
      expect(JSON.stringify(seen)).not.toContain(key);
      expect((await world.decided(gateway, { headers: own })).status).toBe(401);
      expect(world.upstream.take()).toEqual([]);
    });
  });
});
