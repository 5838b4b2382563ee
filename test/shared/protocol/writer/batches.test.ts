import { describe, expect, test } from 'vitest';
import type { Clock } from '../../../../shared/process/clock.ts';
import type { BatchedChangeLog, Write } from '../../../../shared/protocol/log/change-log-port.ts';
import { Fence } from '../../../../shared/protocol/writer/fence.ts';
import type { BatchEvents } from '../../../../shared/protocol/writer/writer.ts';
import { ChangeWriter } from '../../../../shared/protocol/writer/writer.ts';
import { apiKeys } from '../../../../shared/redis/redis-keys.ts';
import { unavailable } from '../../../../shared/rules/errors.ts';
import { Timeline } from '../../../proof/simulation/clock.ts';
import { RedisState, type Step } from '../../../proof/simulation/redis.ts';

const nothing = () => undefined;
/** A follower of API `a` has acknowledged changes up to one. */
const follow = (redis: RedisState, name: string, sequence: number) =>
  redis.command('ZADD', apiKeys('a').members, String(sequence), name);
const LEASE_MS = 500;

/** A control plane's propagation over a simulated Redis, and what it wrote there, part by part. */
function world(pending = { changesMax: 100, stopsMax: 100 }) {
  const timeline = new Timeline();
  const clock: Clock = {
    monotonicMs: () => timeline.nowMs,
    wallMs: () => timeline.nowMs,
    after: (ms, run) => timeline.after(ms, run),
  };
  const limits = { logEntries: 9, creationsKept: 9, payloadBytesMax: 1024 };
  const state = new RedisState({ ...limits, batchEntriesMax: 9, batchBytesMax: 1024 });
  for (const apiId of ['a', 'b']) {
    state.createApi(apiId, LEASE_MS);
    for (let i = 0; i < 10; i++) state.createKey(apiId, `${apiId}${i}`, { p: `digest ${i}`, e: '1' });
  }
  const at = {
    server: state,
    /** The server before the latest change was written. */
    beforeLatest: state,
    failsAtPart: 0,
    refusals: 0,
    isDeaf: false,
    rewritten: [] as string[],
    failure: unavailable('the connection to Redis was lost') as Error,
    parts: [] as string[],
  };
  const run = async <T>(step: Step<T>) => step(at.server);
  const write: BatchedChangeLog['write'] = async (change) => {
    if (at.isDeaf) {
      at.refusals++;
      throw unavailable('Redis is out of reach');
    }
    at.beforeLatest = at.server.clone();
    const written = await run((server) => server.write(change, 0));
    return written.status === 'OK' ? { ...written, replicated: true } : written;
  };
  const log: BatchedChangeLog = {
    write,
    async writeAll(writes) {
      at.parts.push(writes.map(({ keyId }) => keyId).join(' '));
      if (at.parts.length === at.failsAtPart) throw at.failure;
      return Promise.all(writes.map(write));
    },
    lag: (apiId) => run((server) => server.lag(apiId)),
    check: (change) => run((server) => server.check(change)),
    close: (apiId, change) => run((server) => server.close(apiId, change, -1)),
    reap: (apiId, killed) => run((server) => server.reap(apiId, killed)),
  };
  const fence = new Fence(log, clock, 0, { ended: nothing, killed: nothing, reaped: nothing });
  const changeWriter = new ChangeWriter({
    ...{
      log,
      fence,
      clock,
      durable: () => true,
      events: { rewritten: (_, keyId, how) => void at.rewritten.push(`${keyId} ${how}`) },
    },
    limits: {
      fenceWaitMs: 400,
      pending,
      replicated: false,
      batch: { partMax: 2, periodMs: 8, giveWayMs: 20, lagMax: 4 },
    },
  });
  const writes = (apiId: string, count: number, fields: Write['fields'] = { e: '0' }) => {
    const [first, ...others] = Array.from({ length: count }, (_, i): Write => {
      return { apiId, operation: 'update', keyId: `${apiId}${i}`, fields };
    });
    if (!first) throw new Error('no writes');
    return [first, ...others] as const;
  };
  const begin = (apiId: string, count: number, fields?: Write['fields'], events?: BatchEvents) => {
    const ended = { value: undefined as unknown };
    changeWriter.applyAll(writes(apiId, count, fields), undefined, events).then(
      (value) => Object.assign(ended, { value }),
      (error: Error) => Object.assign(ended, { value: error.message }),
    );
    return ended;
  };
  return { timeline, at, state, fence, changeWriter, writes, begin };
}

describe('a batch', () => {
  test('is complete with its last change', async () => {
    const { timeline, state, begin, fence } = world();
    follow(state, 'follower', 0);
    const ended = begin('a', 5);
    await timeline.run(100);
    expect([state.api('a').sequence, fence.pending]).toEqual([5, 5]);
    follow(state, 'follower', 4);
    await timeline.run(200);
    expect(ended.value).toBeUndefined();
    follow(state, 'follower', 5);
    await timeline.run(400);
    expect(ended.value).toMatchObject({
      outcomes: [1, 2, 3, 4, 5].map((sequence) => ({ keyId: `a${sequence - 1}`, sequence })),
      propagation: { state: 'complete', by: 'acks', sequence: 5, verifiers: 1, durable: true },
    });
    expect(fence.pending).toBe(0);
    fence.stop();
  });

  test('waits before the log outruns a follower', async () => {
    const { timeline, state, begin, fence } = world();
    follow(state, 'slow', 0);
    follow(state, 'killed', -7);
    begin('a', 10);
    await timeline.run(300);
    expect(state.api('a').sequence).toBe(6);
    expect(state.api('a').log[0]?.sequence).toBe(1);
    follow(state, 'slow', 6);
    await timeline.run(390);
    expect(state.api('a').sequence).toBe(10);
    fence.stop();
  });

  test('held up by a follower for long is 503', async () => {
    const { timeline, state, begin, fence, changeWriter, writes } = world();
    follow(state, 'slow', 0);
    const ended = begin('a', 10);
    await timeline.run(490);
    expect(ended.value).toBe(
      'a verifier is behind by 6 changes of api a; any of the keys may have been changed: send the call again',
    );
    // By then a fence has killed it.
    await timeline.run(700);
    const again = changeWriter.applyAll(writes('a', 10), 0);
    await timeline.run(1000);
    expect((await again).outcomes).toHaveLength(10);
    expect(state.api('a').sequence).toBe(16);
    fence.stop();
  });

  test('waits its turn in its API, part by part', async () => {
    const { timeline, at, begin, fence } = world();
    follow(at.server, 'slow', 0);
    begin('a', 4);
    begin('a', 4, { e: '1' });
    begin('b', 4);
    await timeline.run(10);
    expect(at.parts).toEqual(['a0 a1', 'b0 b1', 'b2 b3']);
    await timeline.run(300);
    expect(at.parts.filter((part) => part.startsWith('a'))).toEqual(['a0 a1', 'a0 a1', 'a2 a3']);
    fence.stop();
  });

  test('begins a part a period after the one before', async () => {
    const { timeline, at, begin, fence } = world();
    begin('a', 4);
    begin('a', 2, { e: '1' });
    const startedAt: number[] = [];
    for (let ms = 0; ms <= 40; ms++) {
      await timeline.run(ms);
      while (startedAt.length < at.parts.length) startedAt.push(ms);
    }
    expect(startedAt).toEqual([0, 8, 16]);
    fence.stop();
  });

  test('failed in part is 503 and tells what is in', async () => {
    const { timeline, at, begin, fence, changeWriter, writes } = world({ changesMax: 6, stopsMax: 6 });
    at.failsAtPart = 2;
    const told: string[] = [];
    const ended = begin('a', 6, undefined, {
      onWritten: (changes) => void told.push(...changes.map(({ write }) => `written ${write.keyId}`)),
      onUnknown: (unwritten) => void told.push(...unwritten.map(({ keyId }) => `unknown ${keyId}`)),
    });
    await timeline.run(100);
    expect(ended.value).toBe(
      'the connection to Redis was lost; any of the keys may have been changed: send the call again',
    );
    expect(told).toEqual(['written a0', 'written a1', 'unknown a2', 'unknown a3']);
    expect(at.parts).toEqual(['a0 a1', 'a2 a3']);
    const again = changeWriter.applyAll(writes('a', 6), 0);
    await timeline.run(200);
    expect((await again).outcomes).toHaveLength(6);
    fence.stop();
  });

  test('tells why it failed halfway', async () => {
    const { at, fence, changeWriter, writes } = world();
    at.failsAtPart = 1;
    await expect(changeWriter.applyAll(writes('a', 2), 0)).rejects.toMatchObject({
      code: 'SERVICE_UNAVAILABLE',
      cause: { message: 'the connection to Redis was lost' },
    });
    at.failsAtPart = 2;
    at.failure = new TypeError('a mistake');
    await expect(changeWriter.applyAll(writes('a', 2), 0)).rejects.toBe(at.failure);
    fence.stop();
  });

  test('is refused whole or let through alone', async () => {
    const { timeline, state, begin, fence, changeWriter, writes } = world({ changesMax: 2, stopsMax: 3 });
    follow(state, 'silent', 0);
    begin('a', 4);
    await timeline.run(100);
    expect(state.api('a').sequence).toBe(4);
    const refused = changeWriter.applyAll(writes('a', 1), 0);
    await expect(refused).rejects.toMatchObject({
      code: 'SERVICE_UNAVAILABLE',
      message: '3 disables and deletes of api a are not complete yet; nothing was changed',
    });
    follow(state, 'silent', 4);
    await timeline.run(300);
    await expect(changeWriter.applyAll(writes('a', 1), 0)).resolves.toBeDefined();
    fence.stop();
  });
});

describe('a failover that takes the end of a batch', () => {
  test.each([
    ['has those disables written again that it took', { e: '0' }, 'complete'],
    ['is told to the caller for each other change that it took', { e: '1' }, 'conflict'],
  ] as const)('%s', async (_, fields, outcome) => {
    const { timeline, at, state, begin, fence } = world();
    follow(state, 'follower', 0);
    const ended = begin('a', 2, fields);
    await timeline.run(1);
    const successor = at.beforeLatest;
    at.server = successor;
    await timeline.run(100);
    follow(successor, 'follower', successor.api('a').sequence);
    await timeline.run(390);
    expect(successor.api('a').sequence).toBe(outcome === 'complete' ? 2 : 1);
    const second =
      outcome === 'complete' ? { sequence: 2 } : { failure: expect.objectContaining({ code: 'CONFLICT' }) };
    expect(ended.value).toMatchObject({
      outcomes: [
        { keyId: 'a0', sequence: 1 },
        { keyId: 'a1', ...second },
      ],
      propagation: { state: 'complete', sequence: outcome === 'complete' ? 2 : 1 },
    });
    fence.stop();
  });

  test('tells a late caller what was written again', async () => {
    const { timeline, at, state, begin, fence } = world();
    follow(state, 'follower', 0);
    const successor = state.clone();
    const ended = begin('a', 2);
    await timeline.run(1);
    successor.write({ apiId: 'a', operation: 'update', keyId: 'a9', fields: { n: 'another' } }, 0);
    at.server = successor;
    await timeline.run(400);
    expect(ended.value).toMatchObject({
      outcomes: [
        { keyId: 'a0', sequence: 2 },
        { keyId: 'a1', sequence: 3 },
      ],
      propagation: { state: 'pending', sequence: 3 },
    });
    fence.stop();
  });

  test('is fought for a while, until a stop', async () => {
    const taken = async () => {
      const { timeline, at, state, begin, fence, changeWriter } = world();
      follow(state, 'follower', 0);
      const empty = state.clone();
      begin('a', 1);
      await timeline.run(1);
      Object.assign(at, { server: empty, isDeaf: true });
      return { timeline, at, fence, changeWriter };
    };
    const patient = await taken();
    await patient.timeline.run(200_000);
    expect([patient.at.rewritten, patient.at.refusals]).toEqual([['a0 given up'], 50]);
    patient.fence.stop();
    const stopped = await taken();
    await stopped.timeline.run(3000);
    stopped.changeWriter.stop();
    const { refusals } = stopped.at;
    await stopped.timeline.run(200_000);
    expect(refusals).toBeGreaterThan(1);
    expect(stopped.at.refusals).toBeLessThanOrEqual(refusals + 1);
  });
});
