import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type RedisServer, startRedis } from '../../../deploy/dev/redis-server.ts';
import type { Exchanges, PoolTurn } from '../../../shared/metering/exchange.ts';
import { RedisExchanges } from '../../../shared/metering/redis-exchanges.ts';
import { systemClock } from '../../../shared/process/clock.ts';
import { createLogger } from '../../../shared/process/log.ts';
import { RedisDirectory } from '../../../shared/protocol/follower/session.ts';
import type { Directory, Session, SyncRequest } from '../../../shared/protocol/follower/source.ts';
import { parsePublished } from '../../../shared/protocol/log/change.ts';
import { writeRun } from '../../../shared/protocol/log/change-log.ts';
import type { Write } from '../../../shared/protocol/log/change-log-port.ts';
import { createKey, setPointer } from '../../../shared/protocol/log/new-key-record.ts';
import { createApi } from '../../../shared/protocol/log/new-log.ts';
import { PROTOCOL } from '../../../shared/protocol/records/protocol.ts';
import { RedisNodes } from '../../../shared/redis/redis.ts';
import {
  apiKeys,
  formatPointer,
  indexOf,
  metaKey,
  recordKey,
  secretPointer,
} from '../../../shared/redis/redis-keys.ts';
import { type Run, send } from '../../../shared/redis/script.ts';
import { hashSecret } from '../../../shared/rules/key-format.ts';
import { redisConfig } from '../../harness/config.ts';
import { scratch } from '../../harness/scratch.ts';
import { eventually } from '../../harness/waiting.ts';
import { Machine, Timeline } from './clock.ts';
import { Network } from './network.ts';
import { RedisGroup, RedisNode } from './nodes.ts';
import { Lanes, SimulatedDirectory } from './ports.ts';
import { Random } from './random.ts';
import { RedisState } from './redis.ts';

/** A Redis as a verifier and this test reach it. */
interface Side {
  /** Gives a verifier of its own process. */
  verifier(): Pick<Directory, 'open' | 'lookUp'> & Pick<Exchanges, 'exchange'>;
  /** Runs a script of the control plane. */
  run<T>(run: Run<T>): Promise<T>;
  publish(channel: string, message: string): Promise<unknown>;
  /** Redis ends all connections of verifiers. */
  cut(): Promise<unknown>;
  /** Redis takes requests, but does not answer, until `wake`. */
  stun(): void;
  wake(): void;
  close(): Promise<void>;
}

/** Required replicas, of which there are none: nothing is ever confirmed. */
const UNCONFIRMED = 1;

async function realRedis(replicas: number): Promise<Side> {
  const directory = scratch('source');
  const server: RedisServer = await startRedis(join(directory, 'redis'));
  const redis = new Redis(server.url);
  const all: RedisNodes[] = [];
  return {
    verifier() {
      const config = redisConfig({ REDIS_URL: server.url, REDIS_COMMAND_TIMEOUT_MS: '1000' });
      const nodes = new RedisNodes(config, systemClock, createLogger('verifier', 'silent'));
      all.push(nodes);
      const directory = new RedisDirectory(nodes, replicas, systemClock);
      const exchanges = new RedisExchanges(nodes, replicas);
      return {
        open: (apiId) => directory.open(apiId),
        lookUp: (...secretHashes) => directory.lookUp(...secretHashes),
        exchange: (...turns) => exchanges.exchange(...turns),
      };
    },
    run: (run) => send(redis, run),
    publish: (channel, message) => redis.publish(channel, message),
    cut: () =>
      Promise.all((['normal', 'pubsub'] as const).map((type) => redis.call('CLIENT', 'KILL', 'TYPE', type))),
    stun: () => server.process.kill('SIGSTOP'),
    wake: () => server.process.kill('SIGCONT'),
    async close() {
      server.process.kill('SIGCONT');
      redis.disconnect();
      await Promise.all(all.map((nodes) => nodes.close()));
      await server.stop();
      rmSync(directory, { recursive: true });
    },
  };
}

/** Its time goes on, as fast as this process can, until it is closed. */
async function simulatedRedis(replicas: number): Promise<Side> {
  const [timeline, random] = [new Timeline(), new Random(1)];
  const limits = {
    ...{ logEntries: 10_000, creationsKept: 100_000, payloadBytesMax: 1024 },
    ...{ batchEntriesMax: 500, batchBytesMax: 1_048_576 },
  };
  const node = (name: string) => new RedisNode(name, new RedisState(limits, () => network.redisMs));
  const servers = ['A', 'B'].slice(0, replicas + 1).map(node);
  const group = new RedisGroup(servers, undefined, timeline, random);
  const [server, replica] = servers as [RedisNode, RedisNode?];
  if (replica) group.stall(replica, true);
  const network: Network = new Network(timeline, random, group, {
    ...{ messageLoss: 0, messageDuplication: 0, messageDelay: 0, slowness: 0, slowMsMax: 1 },
    desynchronisation: 0,
  });
  const machines: Machine[] = [];
  let isOpen = true;
  const time = (async () => {
    while (isOpen) {
      await timeline.run(timeline.nowMs + 20);
      await new Promise((resolve) => setImmediate(resolve));
    }
  })();
  const onAll = (passage: 'open' | 'held') => {
    for (const machine of machines) network.set(network.link(machine, server), 'out', passage);
  };
  const nothing = () => undefined;
  return {
    verifier() {
      const machine = new Machine(`V${machines.length}`, timeline, random, 1);
      machines.push(machine);
      const events = { registering: nothing, registered: nothing, granted: nothing };
      return new SimulatedDirectory(new Lanes(network, machine, false), events, true, PROTOCOL, true);
    },
    run: async (run) => group.execute(server, '', 'write', (state) => state.run(run)),
    publish: async (channel, message) => server.publish([['PUBLISH', channel, message]]),
    cut: async () => server.closeClients(),
    stun: () => onAll('held'),
    wake: () => onAll('open'),
    async close() {
      isOpen = false;
      await time;
    },
  };
}

const LEASE_MS = 5000;
const [ME, OTHER] = [`${PROTOCOL}.me`, `${PROTOCOL}.other`];
const UNAVAILABLE = { code: 'SERVICE_UNAVAILABLE' };

let apis = 0;
/** A new API with two keys; the first has 40 credits. */
async function fill(side: Side) {
  const apiId = `api_${++apis}`;
  const hashes = { key_1: hashSecret(`${apiId}/1`), key_2: hashSecret(`${apiId}/2`) };
  const { head, creations, members, base } = apiKeys(apiId);
  await side.run(createApi({ head, members: [], now: 0, lease: LEASE_MS, fields: [] }));
  for (const [keyId, hash] of Object.entries(hashes)) {
    await side.run(setPointer({ pointer: secretPointer(hash), value: formatPointer(apiId, keyId) }));
    const record = recordKey(apiId, keyId);
    const run = createKey({
      ...{ head, index: indexOf(apiId, keyId), record, long: metaKey(apiId, keyId), owners: record },
      ...{ creations, members, base, keyId, now: 0, auto: '0', lease: 0, meta: '', owner: '', foreign: '0' },
      ...{ kept: 100, content: keyId, needs: 1, defaults: '*' },
      credits: keyId === 'key_1' ? JSON.stringify({ id: `${apiId}-pool`, op: 'set', value: 40 }) : '',
      fields: ['p', hash, 'e', '1'],
    });
    expect(await side.run(run)).toMatchObject({ status: 'OK' });
  }
  const write = (about: Partial<Write>) =>
    side.run(
      writeRun({ apiId, operation: 'update', keyId: 'key_1', fields: { e: '0' }, ...about }, 1, () => 'p'),
    );
  const turn = (about: Partial<PoolTurn>): PoolTurn => ({
    ...{ pool: `${apiId}-pool`, turn: 1, spent: 0, held: 0, position: 0, kept: 0, slice: 0 },
    ...{ needs: [{ cost: 15, times: 1 }], ...about },
  });
  return { apiId, hashes, write, turn, ...apiKeys(apiId) };
}

/** A SYNC of who registered and applied nothing since. */
const request = (about: Partial<SyncRequest> = {}): SyncRequest => ({
  ...{ member: ME, position: 0, hash: '', creations: '0-', nonce: 'n', ...about },
});
const nothing = () => undefined;

describe.each([
  ['Redis', realRedis],
  ['the simulated Redis', simulatedRedis],
] as const)('%s, to a verifier,', (_, start) => {
  let side: Side;
  beforeAll(async () => {
    side = await start(0);
  });
  afterAll(() => side.close());
  const open = async (apiId: string): Promise<Session> => side.verifier().open(apiId);

  test('registers it at the end of the log', async () => {
    const { apiId, write } = await fill(side);
    await write({});
    const session = await open(apiId);
    const registered = await session.register(ME, 'n1');
    expect(registered).toMatchObject({ nonce: 'n1', sequence: 1, leaseMs: LEASE_MS, apiDeleted: false });
    expect(registered.creations).toMatch(/^2-[0-9a-f]+$/);
    const { sequence: position, hash, creations } = registered;
    const synced = await session.sync(request({ position, hash, creations, nonce: 'n2' }));
    expect(synced).toMatchObject({ status: 'OK', nonce: 'n2', sequence: 1, hash, leaseMs: LEASE_MS });
    expect(synced.entries).toEqual([]);
    // A REGISTER whose reply was lost is sent again.
    expect(await session.register(ME, 'n3')).toEqual({ ...registered, nonce: 'n3' });
  });

  test('brings what it lacks, in order, again and again', async () => {
    const { apiId, write } = await fill(side);
    const session = await open(apiId);
    await session.register(ME, 'n');
    await write({});
    await write({ keyId: 'key_2', fields: { n: 'Ada' } });
    const synced = await session.sync(request({ keyId: 'key_1' }));
    expect(synced.entries.map(({ sequence, keyId }) => [sequence, keyId])).toEqual([
      [1, 'key_1'],
      [2, 'key_2'],
    ]);
    expect(synced.entries[1]?.hash).toBe(synced.hash);
    expect(synced.creations).toMatch(/^2-/);
    expect(synced.record.length).toBeGreaterThan(2);
    expect(await session.sync(request({ keyId: 'key_1' }))).toEqual(synced);
    expect((await session.sync(request({ keyId: 'key_3' }))).record).toEqual([]);
  });

  test('finds a key by its secret, and tells others', async () => {
    const [mine, others] = [await fill(side), await fill(side)];
    const session = await open(mine.apiId);
    await session.register(ME, 'n');
    const elsewhere = await session.sync(request({ secretHash: others.hashes.key_1 }));
    expect(elsewhere).toMatchObject({ status: 'ELSEWHERE', nonce: 'n' });
    expect(elsewhere.pointer).toEqual({ apiId: others.apiId, keyId: 'key_1' });
    const absent = await session.sync(request({ secretHash: 'c'.repeat(64) }));
    expect([absent.status, absent.pointer]).toEqual(['ELSEWHERE', undefined]);
    const found = await open(others.apiId);
    await found.register(ME, 'n');
    const synced = await found.sync(request({ secretHash: others.hashes.key_1 }));
    expect(synced).toMatchObject({ status: 'OK', pointer: { apiId: others.apiId, keyId: 'key_1' } });
    expect(synced.record).toEqual((await found.sync(request({ keyId: 'key_1' }))).record);
    const verifier = side.verifier();
    expect(await verifier.lookUp(others.hashes.key_2)).toEqual({ apiId: others.apiId, keyId: 'key_2' });
    expect(await verifier.lookUp('c'.repeat(64))).toBeUndefined();
  });

  test('refuses the unknown, the ahead and the strange', async () => {
    const { apiId, write } = await fill(side);
    const session = await open(apiId);
    expect(await session.sync(request())).toMatchObject({ status: 'NOREG', nonce: 'n' });
    const { creations } = await session.register(ME, 'n');
    await write({});
    const strange = { position: 1, hash: 'f'.repeat(40), creations };
    expect(await session.sync(request({ position: 9, creations }))).toMatchObject({ status: 'DIVERGED' });
    expect(await session.sync(request(strange))).toMatchObject({ status: 'DIVERGED', nonce: 'n' });
    const marks = { creations: '1-0123456789abcdef' };
    expect(await session.sync(request(marks))).toMatchObject({ status: 'DIVERGED' });
    await session.leave(ME);
    await session.leave('nobody');
    expect(await session.sync(request())).toMatchObject({ status: 'NOREG' });
  });

  test('refuses a verifier that is too old', async () => {
    const { apiId, write } = await fill(side);
    expect(await write({ needs: PROTOCOL + 1 })).toMatchObject({ status: 'OK' });
    await expect((await open(apiId)).register(ME, 'n')).rejects.toMatchObject(UNAVAILABLE);
  });

  test('says that an API is deleted', async () => {
    const { apiId, write } = await fill(side);
    const session = await open(apiId);
    await session.register(ME, 'n');
    await write({ operation: 'api-deleted', keyId: '', fields: {} });
    expect(await session.sync(request())).toMatchObject({ status: 'OK', apiDeleted: true });
    expect(await session.register(ME, 'n')).toMatchObject({ apiDeleted: true, sequence: 1 });
  });

  test('publishes each change, with what a SYNC brings', async () => {
    const { apiId, write, channel } = await fill(side);
    const session = await open(apiId);
    const messages: string[] = [];
    await session.subscribe((message) => messages.push(message), nothing);
    await session.register(ME, 'n');
    await write({});
    await eventually(() => messages.length === 1);
    const [entry] = (await session.sync(request())).entries;
    expect(parsePublished(messages[0] ?? '')).toEqual({ ...entry, previousHash: '' });
    // Doubled, it arrives twice: the port promises no less.
    await side.publish(channel, messages[0] ?? '');
    await eventually(() => messages.length === 2);
    expect(messages[1]).toBe(messages[0]);
    session.end('quietly');
    await side.publish(channel, 'unheard');
    const later = await open(apiId);
    await later.register(OTHER, 'n');
    expect(messages).toHaveLength(2);
  });

  test('grants credits once, however often a turn comes', async () => {
    const { apiId, turn } = await fill(side);
    const verifier = side.verifier();
    const [unregistered] = await verifier.exchange(apiId, ME, [turn({})]);
    expect(unregistered).toMatchObject({ turn: 1, status: 'OLD', granted: 0 });
    await (await verifier.open(apiId)).register(ME, 'n');
    const [granted] = await verifier.exchange(apiId, ME, [turn({})]);
    expect(granted).toMatchObject({ turn: 1, status: 'OK', granted: 15 });
    expect((await verifier.exchange(apiId, ME, [turn({})]))[0]).toMatchObject({ status: 'OLD' });
    const [more] = await verifier.exchange(apiId, ME, [turn({ turn: 2, spent: 15 })]);
    expect(more).toMatchObject({ status: 'OK', granted: 30, spent: 15 });
    // What came late, behind its successor, changes nothing.
    expect((await verifier.exchange(apiId, ME, [turn({})]))[0]).toMatchObject({ status: 'OLD' });
    const [last] = await verifier.exchange(apiId, ME, [turn({ turn: 3, spent: 30 })]);
    expect(last).toMatchObject({ status: 'NONE', granted: 30, leastNeed: 15 });
  });

  test('recalls what others hold and somebody needs', async () => {
    const { apiId, turn } = await fill(side);
    const [mine, others] = [side.verifier(), side.verifier()];
    const recalled: string[] = [];
    const session = await mine.open(apiId);
    await session.subscribe(nothing, (pool) => recalled.push(pool));
    await session.register(ME, 'n');
    await (await others.open(apiId)).register(OTHER, 'n');
    const [slice] = await mine.exchange(apiId, ME, [turn({ needs: [], slice: 20 })]);
    expect(slice).toMatchObject({ status: 'OK', granted: 5 });
    const [waits] = await others.exchange(apiId, OTHER, [turn({ needs: [{ cost: 38, times: 1 }] })]);
    expect(waits).toMatchObject({ status: 'WAIT', leastNeed: 38 });
    await eventually(() => recalled.length > 0);
    expect(recalled[0]).toBe(`${apiId}-pool`);
    await mine.exchange(apiId, ME, [turn({ turn: 2, needs: [] })]);
    const [after] = await others.exchange(apiId, OTHER, [turn({ turn: 2, needs: [{ cost: 38, times: 1 }] })]);
    expect(after).toMatchObject({ status: 'OK', granted: 38 });
  });

  test('ends a session with its connection, and says so once', async () => {
    const { apiId } = await fill(side);
    const verifier = side.verifier();
    const session = await verifier.open(apiId);
    await session.register(ME, 'n');
    let ends = 0;
    session.onEnd(() => ends++);
    await side.cut();
    await eventually(() => ends === 1);
    await expect(session.sync(request())).rejects.toMatchObject(UNAVAILABLE);
    await expect(session.register(ME, 'n')).rejects.toMatchObject(UNAVAILABLE);
    session.onEnd(() => ends++);
    expect(ends).toBe(2);
    await eventually(async () => (await (await verifier.open(apiId)).sync(request())).status === 'OK');
  });

  test('ends no other session with a quiet end', async () => {
    const { apiId, write } = await fill(side);
    const verifier = side.verifier();
    const [one, another] = [await verifier.open(apiId), await verifier.open((await fill(side)).apiId)];
    await one.register(ME, 'n');
    await another.register(ME, 'n');
    const ends: string[] = [];
    one.onEnd(() => ends.push('one'));
    another.onEnd(() => ends.push('another'));
    one.end('quietly');
    expect(ends).toEqual(['one']);
    await write({});
    expect((await another.sync(request())).status).toBe('OK');
    another.end('cut');
    expect(ends).toEqual(['one', 'another']);
  });

  test('that answers nothing, rejects what waits', async () => {
    const { apiId } = await fill(side);
    const session = await open(apiId);
    await session.register(ME, 'n');
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    session.onEnd(resolve);
    side.stun();
    try {
      await expect(session.sync(request())).rejects.toMatchObject(UNAVAILABLE);
      await ended;
    } finally {
      side.wake();
    }
  });
});

describe.each([
  ['Redis', realRedis],
  ['the simulated Redis', simulatedRedis],
] as const)('%s, without a required replica,', (_, start) => {
  test('confirms no registration and no exchange', async () => {
    const side = await start(UNCONFIRMED);
    try {
      const { apiId, turn } = await fill(side);
      const verifier = side.verifier();
      const session = await verifier.open(apiId);
      await expect(session.register(ME, 'n')).rejects.toMatchObject(UNAVAILABLE);
      // It may have happened all the same, and here it did.
      expect((await session.sync(request())).status).toBe('OK');
      await expect(verifier.exchange(apiId, ME, [turn({})])).rejects.toMatchObject(UNAVAILABLE);
    } finally {
      await side.close();
    }
  });
});
