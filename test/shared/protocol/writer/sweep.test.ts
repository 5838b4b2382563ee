import { expect, test } from 'vitest';
import type { Clock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import type { ChangeLog, Write } from '../../../../shared/protocol/log/change-log-port.ts';
import { Fence } from '../../../../shared/protocol/writer/fence.ts';
import type { Head, SweepStore } from '../../../../shared/protocol/writer/sweep.ts';
import { Sweep } from '../../../../shared/protocol/writer/sweep.ts';

const LEASE_MS = 10_000;
const nothing = () => undefined;
const refuse = () => Promise.reject(new Error('nobody asks for this here'));

/** A clock on which time passes only when the test says so. */
class SteppedClock implements Clock {
  #nowMs = 0;
  #timers: { atMs: number; run: () => void }[] = [];

  monotonicMs = () => this.#nowMs;
  wallMs = () => this.#nowMs;

  after(delayMs: number, run: () => void) {
    const timer = { atMs: this.#nowMs + delayMs, run };
    this.#timers.push(timer);
    return { cancel: () => this.#forget(timer) };
  }

  async pass(ms: number): Promise<void> {
    const untilMs = this.#nowMs + ms;
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      const next = this.#timers.toSorted((a, b) => a.atMs - b.atMs)[0];
      if (next === undefined || next.atMs > untilMs) break;
      this.#forget(next);
      this.#nowMs = next.atMs;
      next.run();
    }
    this.#nowMs = untilMs;
  }

  #forget(timer: object): void {
    this.#timers = this.#timers.filter((each) => each !== timer);
  }
}

/** A sweep over APIs with so many members each; what it looked at and wrote, in order. */
function sweepOver(members: Readonly<Record<string, number>>) {
  const clock = new SteppedClock();
  const ids = Object.keys(members).sort();
  const [visited, written]: [string[], { apiId: string; atMs: number }[]] = [[], []];
  const sequences = new Map<string, number>();
  const store: SweepStore = {
    ids: async (after, limit) => ids.filter((apiId) => apiId > after).slice(0, limit),
    createSharedLog: async () => undefined,
    head: async (apiId): Promise<Head> => {
      visited.push(apiId);
      return {
        ...{ sequence: sequences.get(apiId) ?? 0, grantedMs: LEASE_MS, fencedMs: LEASE_MS, leaseName: '' },
        ...{
          created: true,
          deleted: false,
          isLending: false,
          lendingName: '',
          outlivesMs: 0,
          outlivesFenceMs: 0,
          members: members[apiId] ?? 0,
          killed: [],
        },
      };
    },
    setLease: refuse,
    setLending: refuse,
    removeKeys: refuse,
    forget: refuse,
  };
  const log: ChangeLog = {
    write: async ({ apiId, condition }: Write) => {
      const sequence = Number(condition) + 1;
      sequences.set(apiId, sequence);
      written.push({ apiId, atMs: clock.monotonicMs() });
      const known = { status: 'OK', hash: 'h', leaseMs: LEASE_MS, server: '', previousVersion: '' } as const;
      return { ...known, sequence, replicated: true };
    },
    check: async () => ({
      ...{ state: 'INTACT', followers: 1, laggards: 0, leaseMs: LEASE_MS, replicatedSequence: 0, names: [] },
    }),
    close: refuse,
    reap: refuse,
  };
  const fence = new Fence(log, clock, 0, { ended: nothing, killed: nothing, reaped: nothing });
  const logger = createLogger('control-plane', 'silent');
  const sweep = new Sweep({ store, log, fence, clock, logger, leaseMs: LEASE_MS, deposedMs: 0 });
  void sweep.run();
  return { clock, visited, written, sweep };
}

test.each([199, 200, 201, 400, 650])('all of %i APIs are swept, again and again', async (count) => {
  const names = Array.from({ length: count }, (_, i) => `api${String(i).padStart(4, '0')}`);
  const { clock, visited, sweep } = sweepOver(Object.fromEntries(names.map((apiId) => [apiId, 0])));
  await clock.pass(30_000);
  const visits = Map.groupBy(visited, (apiId) => apiId);
  expect([...visits.keys()].sort()).toEqual(names);
  for (const each of visits.values()) expect(each.length).toBeGreaterThanOrEqual(5);
  sweep.stop();
});

test('leaves an API without followers alone', async () => {
  const { clock, written, sweep } = sweepOver({ alone: 0, followed: 1 });
  await clock.pass(600_000);
  expect(written.filter(({ apiId }) => apiId === 'alone')).toEqual([]);
  sweep.stop();
});

test('writes a no-op only after half an idle minute', async () => {
  const { clock, written, sweep } = sweepOver({ followed: 2 });
  await clock.pass(29_000);
  expect(written).toEqual([]);
  await clock.pass(600_000);
  const gaps = written.slice(1).map(({ atMs }, i) => atMs - (written[i]?.atMs ?? 0));
  expect(written.length).toBeGreaterThan(10);
  expect(Math.min(...gaps)).toBeGreaterThanOrEqual(30_000);
  sweep.stop();
});
