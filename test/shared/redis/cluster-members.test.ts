import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../../shared/process/clock.ts';
import { createLogger, type Logger } from '../../../shared/process/log.ts';
import { RedisNodes } from '../../../shared/redis/redis.ts';
import { redisConfig } from '../../harness/config.ts';
import { RedisCluster } from '../../harness/redis-cluster.ts';
import { RedisNode } from '../../harness/redis-nodes.ts';
import { scratch } from '../../harness/scratch.ts';
import { eventually } from '../../harness/waiting.ts';

/** Members of a real Cluster come and go; what REDIS_URL names at the start may be gone, cut off, or of another Cluster. */
const SLOTS = 16_384;
const KEYS = ['kf:a', 'kf:b', 'kf:c', 'kf:d', 'kf:e', 'kf:f', 'kf:g', 'kf:h'];
let directory: string;
const ends: (() => Promise<unknown>)[] = [];
const logged: string[] = [];
beforeEach(() => {
  directory = scratch('members');
  logged.length = 0;
});
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
  rmSync(directory, { recursive: true, force: true });
});

async function open(replicas = 0) {
  const cluster = await RedisCluster.start(join(directory, 'cluster'), replicas);
  ends.push(() => cluster.stop());
  const log = createLogger('verifier', 'silent') as Logger;
  const note = (...words: unknown[]) => void logged.push(words.map(String).join(' '));
  const config = redisConfig({ REDIS_URL: cluster.url, REDIS_MODE: 'cluster' });
  const nodes = new RedisNodes(config, systemClock, {
    ...log,
    debug: () => undefined,
    warn: note,
    error: note,
  });
  ends.push(() => nodes.close());
  // A primary takes no writes before it has seen its replica.
  await eventually(async () => (await askAll(nodes)).length === KEYS.length, 'the Cluster takes no writes');
  return { cluster, nodes };
}

type Ask = (redis: Redis, key: string) => Promise<unknown>;
const write: Ask = (redis, key) => redis.set(key, '1');
/** A primary that has lost its replica takes no writes. */
const read: Ask = (redis, key) => redis.get(key);
const askAll = (nodes: RedisNodes, ask = write) =>
  Promise.all(KEYS.map((key) => nodes.run(key, (redis) => ask(redis, key))));
/** Every key is answered again, within 5 s. */
async function answers(nodes: RedisNodes, ask = write): Promise<void> {
  const startedAt = performance.now();
  let error: unknown;
  await eventually(async () => {
    error = await askAll(nodes, ask).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    return error === undefined;
  }, 'no answer');
  expect(performance.now() - startedAt, String(error)).toBeLessThan(5000);
}

const idOf = async (node: RedisNode) => String(await node.command('CLUSTER', 'MYID'));
/** Ends the connections of clients, as a short fault of the network does. */
const blip = (all: readonly RedisNode[]) =>
  Promise.all(all.map((node) => node.command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')));

/** Gives all slots of a node to another, and removes it, as `redis-cli --cluster del-node` does. */
async function remove(gone: RedisNode, heir: RedisNode, all: readonly RedisNode[]): Promise<void> {
  const id = await idOf(heir);
  const goneId = await idOf(gone);
  await gone.command('FLUSHALL'); // what it holds is written again
  const slots = await slotsOf(gone, goneId);
  for (const { port } of all) {
    const redis = new Redis({ port });
    await Promise.all(slots.map((slot) => redis.cluster('SETSLOT', slot, 'NODE', id)));
    redis.disconnect();
  }
  for (const node of all) if (node !== gone) await node.command('CLUSTER', 'FORGET', goneId);
  await gone.command('CLUSTER', 'RESET', 'SOFT');
}

async function slotsOf(node: RedisNode, id: string): Promise<number[]> {
  const lines = String(await node.command('CLUSTER', 'NODES')).split('\n');
  const [, , , , , , , , ...ranges] = lines.find((line) => line.startsWith(id))?.split(' ') ?? [];
  return ranges.flatMap((range) => {
    const [from = 0, to = from] = range.split('-').map(Number);
    return Array.from({ length: to - from + 1 }, (_, i) => from + i);
  });
}

test('the first seed is removed', async () => {
  const { cluster, nodes } = await open();
  const [first, second] = cluster.nodes as [RedisNode, RedisNode];
  await remove(first, second, cluster.nodes);
  await blip(cluster.nodes);
  await answers(nodes);
});

test('the first seed hangs, and its replica follows it', async () => {
  const { cluster, nodes } = await open(1);
  const [first] = await cluster.primaries();
  if (!first) throw new Error('no primary');
  const [, pid] = /process_id:(\d+)/.exec(String(await first.command('INFO', 'server'))) ?? [];
  process.kill(Number(pid), 'SIGSTOP');
  ends.push(async () => process.kill(Number(pid), 'SIGCONT'));
  await eventually(async () => {
    const primaries = await cluster.primaries();
    return primaries.length === 3 && !primaries.includes(first);
  }, 'no failover');
  await answers(nodes, read);
});

test('a seed that belongs to another Cluster now does not win, even if it is alone', async () => {
  const { cluster, nodes } = await open();
  const [first, second] = cluster.nodes as [RedisNode, RedisNode];
  await remove(first, second, cluster.nodes);
  await first.command('FLUSHALL');
  await first.command('CLUSTER', 'RESET', 'HARD');
  await first.command('CLUSTER', 'ADDSLOTSRANGE', '0', String(SLOTS - 1));
  await first.command('CLUSTER', 'SET-CONFIG-EPOCH', '1000');
  await blip(cluster.nodes);
  await answers(nodes);
  expect(await first.command('DBSIZE')).toBe(0);
  for (const node of cluster.nodes.slice(1)) await node.stop();
  await eventually(async () => {
    const outcome = await askAll(nodes).catch((error: unknown) => error);
    expect(outcome).toMatchObject({ code: 'SERVICE_UNAVAILABLE' });
    return nodes.trouble?.includes('another Redis Cluster') ?? false;
  }, 'it does not say so');
  expect(await first.command('DBSIZE')).toBe(0);
});

test('all seeds are replaced one by one', async () => {
  const { cluster, nodes } = await open();
  let all: RedisNode[] = [...cluster.nodes];
  for (const [i, seed] of cluster.nodes.entries()) {
    const options = ['--cluster-enabled', 'yes', '--cluster-require-full-coverage', 'no'];
    const node = await RedisNode.start(join(directory, `new${i}`), options);
    ends.push(() => node.stop());
    const known = all.find((each) => each !== seed) as RedisNode;
    await node.command('CLUSTER', 'MEET', '127.0.0.1', String(known.port));
    all = [...all, node];
    await eventually(async () => {
      const counts = await Promise.all(
        all.map(async (each) => (await each.command('CLUSTER', 'NODES')) as string),
      );
      const ids = await Promise.all(all.map(idOf));
      return counts.every((text) => ids.every((id) => text.includes(id)) && !text.includes('handshake'));
    }, 'they have not met');
    await remove(seed, node, all);
    all = all.filter((each) => each !== seed);
    await seed.stop();
    await blip(all);
    await answers(nodes);
  }
  expect(logged.join('\n')).toContain('none of REDIS_URL is a member any more');
});
