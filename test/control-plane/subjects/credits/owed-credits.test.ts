import { afterEach, beforeEach, expect, test } from 'vitest';
import { OwedCredits } from '../../../../control-plane/subjects/credits/owed-credits.ts';
import { exchangeTurns } from '../../../../shared/metering/exchange.ts';
import { type Clock, systemClock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { DurableWriter } from '../../../../shared/protocol/log/durable-writer.ts';
import { RedisNodes } from '../../../../shared/redis/redis.ts';
import { apiKeys, poolKey, recordKey } from '../../../../shared/redis/redis-keys.ts';
import { redisConfig } from '../../../harness/config.ts';
import { scriptsOnRedis } from '../../../harness/scripts.ts';
import { PATIENT } from '../../../harness/waiting.ts';

const { at, run } = scriptsOnRedis();
const { members, held, recalls } = apiKeys('a');
const pool = poolKey('a', 'p');

/** A verifier's turn: what it spent so far, keeping nothing, or what it needs. */
const exchange = (turn: number, spent: number | '-', need: number) =>
  run(
    exchangeTurns({
      ...{ members, held, names: [pool], member: '2.a', channel: recalls, recall: 50 },
      turns: [turn, spent, '0 1', 0, need ? `${need}x1` : '', 0, '-', '-', '-', '-'],
    }),
  );

/** Pauses that were made, in milliseconds; time is what they add up to. */
let pauses: number[];
/** What happens in the pause of this number, from 1. */
let meanwhile: { pause: number; act: () => Promise<unknown> } | undefined;
const passed = () => pauses.reduce((sum, ms) => sum + ms, 0);
const clock: Clock = {
  monotonicMs: passed,
  wallMs: () => systemClock.wallMs(),
  after(delayMs, run) {
    pauses.push(delayMs);
    const act = meanwhile?.pause === pauses.length ? meanwhile.act() : Promise.resolve();
    void act.then(() => setImmediate(run));
    return { cancel: () => undefined };
  },
};

let nodes: RedisNodes;
let credits: OwedCredits;
/** A pool of 100, of which a verifier has 20, and from which a decrement takes 90. */
beforeEach(async () => {
  [pauses, meanwhile] = [[], undefined];
  const config = redisConfig({ REDIS_URL: `unix://${at.redis.options.path}`, ...PATIENT });
  nodes = new RedisNodes(config, systemClock, createLogger('control-plane', 'silent'));
  credits = new OwedCredits(new DurableWriter(nodes, 0), clock);
  await at.redis.zadd(members, 0, '2.a');
  await at.redis.hset(recordKey('a', 'k'), { q: 'p' });
  await at.redis.hset(pool, { b: 100, h: 0 });
  await exchange(1, '-', 20);
  await at.redis.hset(pool, { b: 0, o: 10, '!2.a': 20 });
});
afterEach(() => nodes.close());

test('a decrement waits for credits at verifiers', async () => {
  expect(await credits.isEnded('a', 'k')).toBe(false);
  meanwhile = { pause: 3, act: () => exchange(2, 4, 0) };
  expect(await credits.end('a', 'k')).toBe(6);
  expect(pauses).toHaveLength(3);
  expect(await credits.isEnded('a', 'k')).toBe(true);
});

test('what is settled is not waited for', async () => {
  await exchange(2, 0, 0);
  expect(await credits.end('a', 'k')).toBe(10);
  expect(pauses).toEqual([]);
});

test('waits a second for a silent verifier', async () => {
  expect(await credits.end('a', 'k')).toBe(0);
  expect(passed()).toBe(1000);
  expect(await credits.isEnded('a', 'k')).toBe(false);
});

test('a key without credits has none to settle', async () => {
  await at.redis.del(pool);
  expect(await credits.end('a', 'k')).toBeUndefined();
  expect(await credits.isEnded('a', 'k')).toBe(true);
});
