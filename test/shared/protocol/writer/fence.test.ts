import { expect, test } from 'vitest';
import type { Clock } from '../../../../shared/process/clock.ts';
import type { ChangeLog } from '../../../../shared/protocol/log/change-log-port.ts';
import { Fence, type FenceEvents, type FenceOutcome } from '../../../../shared/protocol/writer/fence.ts';
import { Timeline } from '../../../proof/simulation/clock.ts';
import { RedisState, type Step } from '../../../proof/simulation/redis.ts';

const nothing = () => undefined;
const UPDATE = { apiId: 'a', operation: 'update', keyId: 'k', fields: { e: '0' } } as const;
const LIMITS = {
  logEntries: 1024,
  creationsKept: 1024,
  payloadBytesMax: 1024,
  batchEntriesMax: 1024,
  batchBytesMax: 1024,
};

const clockOf = (timeline: Timeline): Clock => ({
  monotonicMs: () => timeline.nowMs,
  wallMs: () => timeline.nowMs,
  after: (ms, run) => timeline.after(ms, run),
});

/** A failover took a change: it was written at a primary that is deposed, and its successor has another one. */
async function afterFailover(where: { writes: 'deposed' | 'successor'; looks: 'deposed' | 'successor' }) {
  const timeline = new Timeline();
  const clock = clockOf(timeline);
  const before = new RedisState(LIMITS);
  before.createApi('a', 500);
  before.createKey('a', 'k', { p: 'digest', e: '1' });
  const servers = { deposed: before, successor: before.clone() };
  const run = async <T>(server: RedisState, step: Step<T>) => step(server);
  const write =
    (server: RedisState, replicated: boolean): ChangeLog['write'] =>
    async (change) => {
      const written = await run(server, (state) => state.write(change, 0));
      return written.status === 'OK' ? { ...written, replicated } : written;
    };
  const log: ChangeLog = {
    write: write(servers[where.writes], true),
    check: (change) => run(servers[where.looks], (state) => state.check(change)),
    close: (apiId, change) => run(servers[where.looks], (state) => state.close(apiId, change, -1)),
    reap: async () => 0,
  };
  const fence = new Fence(log, clock, 0, { ended: nothing, killed: nothing, reaped: nothing });
  const taken = await write(servers.deposed, false)(UPDATE);
  if (taken.status !== 'OK') throw new Error(taken.status);
  await write(servers.successor, true)({ ...UPDATE, fields: { n: 'another' } });
  let outcome: FenceOutcome | undefined;
  void fence.track('a', 'k', taken).ended.then((ended) => {
    outcome = ended;
  });
  await timeline.run(10_000);
  fence.stop();
  return outcome;
}

test('a write at another server proves no change', async () => {
  expect(await afterFailover({ writes: 'successor', looks: 'deposed' })).toBeUndefined();
});

test('completes with a later write on all replicas', async () => {
  expect(await afterFailover({ writes: 'deposed', looks: 'deposed' })).toBe('acks');
});

test('a change taken by a failover is lost at once', async () => {
  expect(await afterFailover({ writes: 'successor', looks: 'successor' })).toBe('lost');
});

test('ends a slow change once', async () => {
  const timeline = new Timeline();
  const looks = { begun: 0, under: 0, most: 0 };
  const check: ChangeLog['check'] = async ({ keyId }) => {
    const acks = {
      state: 'INTACT',
      followers: 1,
      laggards: 0,
      leaseMs: 500,
      replicatedSequence: 9,
      names: [],
    } as const;
    if (keyId !== 'slow') return acks;
    looks.begun++;
    looks.most = Math.max(looks.most, ++looks.under);
    await new Promise<void>((resolve) => timeline.after(200, resolve));
    looks.under--;
    return acks;
  };
  const never = () => Promise.reject(new Error('not here'));
  const log: ChangeLog = { check, write: never, close: never, reap: async () => 0 };
  const ended: number[] = [];
  const events: FenceEvents = {
    ended: (_outcome, _apiId, sequence) => ended.push(sequence),
    killed: nothing,
    reaped: nothing,
  };
  const fence = new Fence(log, clockOf(timeline), 0, events);
  const written = {
    status: 'OK',
    hash: '',
    leaseMs: 500,
    server: '',
    previousVersion: '',
    replicated: true,
  } as const;
  for (const [i, keyId] of ['slow', 'quick', 'quick', 'quick'].entries())
    fence.track('a', keyId, { ...written, sequence: i + 1 });
  await timeline.run(2000);
  fence.stop();
  expect(looks).toEqual({ begun: 1, under: 0, most: 1 });
  expect(ended.toSorted()).toEqual([1, 2, 3, 4]);
  expect(fence.pending).toBe(0);
});
