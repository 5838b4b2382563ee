import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeGateways, Gateway } from './gateways.ts';
import { Relay } from './relay.ts';
import { showing, World } from './world.ts';

const AT_ONCE = 16;
const ROUNDS = 10;

let world: World;
let key: string;
beforeAll(async () => {
  world = await World.start();
  ({ key } = await world.validKey());
});
afterAll(() => world.stop());

describeGateways((name) => {
  // Over HTTP/2 all requests share one.
  test.skipIf(name === 'envoy-grpc')('connections to the verifier are reused', async () => {
    const relay = await Relay.start(world.around.VERIFIER);
    const directory = mkdtempSync(join(tmpdir(), 'kf-'));
    const gateway = await Gateway.start(name, directory, { ...world.around, VERIFIER: relay.host });
    const ask = async () => (await gateway.ask(showing(key))).status;
    try {
      await world.fleet.until(async () => (await ask()) === 200, `${name} lets nothing pass`);
      const before = relay.connections;
      for (let round = 0; round < ROUNDS; round++) await Promise.all(Array.from({ length: AT_ONCE }, ask));
      // Some ask for its health too, and each thread has connections of its own.
      expect(relay.connections - before).toBeLessThan((AT_ONCE * ROUNDS) / 2);
      expect(await ask()).toBe(200);
    } finally {
      await gateway.stop();
      relay.stop();
      rmSync(directory, { recursive: true });
    }
  });
});
