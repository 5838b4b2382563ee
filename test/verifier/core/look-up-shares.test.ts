import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Agent, request } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from '../../harness/fleet.ts';
import { RedisNode } from '../../harness/redis-nodes.ts';
import { scratch } from '../../harness/scratch.ts';
import { SlowNetwork } from '../../harness/slow-network.ts';

/** Redis is 40 ms away, and strangers keep 2,000 look-ups of made-up keys in flight, each with a correct checksum. */
const [DELAY_MS, FLOOD, GOOD, AT_ONCE] = [20, 2000, 100, 20];
let redis: RedisNode;
let network: SlowNetwork;
let fleet: Fleet;
const keys: string[] = [];
beforeAll(async () => {
  redis = await RedisNode.start(scratch('shares'));
  network = await SlowNetwork.before(redis.port, DELAY_MS);
  fleet = await Fleet.start({ redisUrl: redis.url, verifiers: 0 });
  await fleet.addVerifier({
    ...{ REDIS_URL: network.address.replace('http:', 'redis:'), LOOKUP_WAIT_MS: '5000' },
    CLIENT_IP_HEADER: 'x-forwarded-for',
  });
  for (let i = 0; i < 4 * GOOD; i++) keys.push((await fleet.ok('keys.createKey', { apiId: 'shop' })).key);
});
afterAll(async () => {
  await agent.destroy();
  await fleet.stop();
  await network.close();
  await redis.stop();
});

const STRANGERS = join(import.meta.dirname, 'strangers.ts');
const question = () => `${fleet.verifiers[0]?.address}/authz/api/shop/forward-auth`;
const agent = new Agent({ connections: GOOD });
async function ask(key: string, from?: string): Promise<number> {
  const { statusCode, body } = await request(question(), {
    dispatcher: agent,
    headers: {
      authorization: `Bearer ${key}`,
      ...(from === undefined ? {} : { 'x-forwarded-for': from }),
    },
  });
  await body.dump();
  return statusCode;
}

/** Asks about keys while a flood goes on. Returns how many got no answer. */
async function unanswered(kind: string, ask: () => Promise<number[]>): Promise<number> {
  const child = spawn(process.execPath, [STRANGERS, question(), String(FLOOD), kind], { stdio: 'pipe' });
  try {
    await once(child.stdout, 'data');
    return (await ask()).filter((status) => status !== 200).length;
  } finally {
    child.kill('SIGKILL');
  }
}

test.each(['one', 'network', 'ten'])(
  'a flood from other addresses costs good keys nothing: %s',
  async (kind) => {
    const fresh = keys.splice(0, GOOD);
    const asked = unanswered(kind, async () => {
      const statuses: number[] = [];
      const caller = async () => {
        for (let key = fresh.pop(); key !== undefined; key = fresh.pop())
          statuses.push(await ask(key, '203.0.113.1'));
      };
      await Promise.all(Array.from({ length: AT_ONCE }, caller));
      return statuses;
    });
    expect(await asked).toBeLessThanOrEqual(GOOD / 100);
  },
);

test('where no address is told, a flood costs keys nothing that were good before', async () => {
  const seen = keys.splice(0, GOOD);
  for (const key of seen) expect(await ask(key)).toBe(200);
  const lost = unanswered('none', async () => {
    // The verifier forgets that it may answer, and reads all anew.
    await redis.command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await fleet.until(async () => (await ask(seen[0] ?? '')) === 200);
    return Promise.all(seen.map((key) => ask(key)));
  });
  expect(await lost).toBeLessThanOrEqual(GOOD / 100);
});
