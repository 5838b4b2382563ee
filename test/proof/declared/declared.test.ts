import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../harness/fleet.ts';
import { scratch } from '../../harness/scratch.ts';
import { share } from '../../harness/share.ts';
import { SlowNetwork } from '../../harness/slow-network.ts';
import { DeclaredWorld } from './world.ts';

const folder = scratch('declared-worlds');
const PORT = 23_000 + (process.pid % 2000);
/** A verifier hears of each change this much later than Redis. */
const DELAY_MS = 40;
let fleet: Fleet;
let network: SlowNetwork;
beforeAll(async () => {
  fleet = new Fleet();
  await fleet.startRedis(['--port', String(PORT)]);
  await fleet.addControlPlane({ WEBHOOK_NETWORKS: '127.0.0.0/8' });
  network = await SlowNetwork.before(PORT, DELAY_MS);
  await fleet.addVerifier({ REDIS_URL: network.address.replace('http', 'redis') });
});
afterAll(async () => {
  await fleet.stop();
  await network.close();
  rmSync(folder, { recursive: true, force: true });
});

const ROUNDS = 5;
const BEING_DELETED = /still being deleted|is being deleted|secret exists already|held back, because Api/;
const [first, count] = (process.env['DECLARED_SEEDS'] ?? '').split('+').map(Number);
const seeds = first
  ? Array.from({ length: count ?? 1 }, (_, i) => first + i)
  : share(
      Array.from({ length: 200 }, (_, i) => i + 1),
      20,
    );

test.each(seeds)('files become what they wish, however runs end: seed %i', async (seed) => {
  const world = new DeclaredWorld(fleet, seed, folder);
  const other = await world.byHand();
  for (let round = 0; round < ROUNDS; round++) {
    world.wish();
    const runs = round % 2 === 0 ? 1 : 2;
    await Promise.all(
      Array.from({ length: runs }, async () => {
        const ended = await world.run(world.disturbance());
        if (ended.isFinished && runs === 1) expect(await world.broken()).toEqual([]);
      }),
    );
    // An API keeps its name, and its keys their secrets, until its deletion is over: until then a run says so.
    await fleet.until(async () => {
      const { isFinished, refusals } = await world.run({ at: 0, how: 'none' });
      if (isFinished) expect(await world.broken()).toEqual([]);
      const others = refusals.filter((text) => !BEING_DELETED.test(text));
      if (others.length > 0) throw new Error(others.join());
      return isFinished;
    });
    expect(await world.differences()).toEqual([]);
  }
  await fleet.ok('keys.getKey', { keyId: other });
  world.clean();
});
