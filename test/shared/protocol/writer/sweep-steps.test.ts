import { describe, expect, test } from 'vitest';
import type { Clock } from '../../../../shared/process/clock.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import type { ChangeLog, KilledFollower } from '../../../../shared/protocol/log/change-log-port.ts';
import { fenceMs } from '../../../../shared/protocol/timing.ts';
import { Fence } from '../../../../shared/protocol/writer/fence.ts';
import type { Head, SweepStore } from '../../../../shared/protocol/writer/sweep.ts';
import { Sweep } from '../../../../shared/protocol/writer/sweep.ts';
import { Timeline } from '../../../proof/simulation/clock.ts';

/** Runs the sweep over one API, and records its steps with their times. */
const TICK_MS = 1000;
const STARTED_MS = 5_000_000;
const nothing = () => undefined;
const refuse = () => Promise.reject(new Error('nobody asks for this here'));

function sweepOf(start: Partial<Head>, leaseMs = 10_000, deposedMs = 0) {
  const timeline = new Timeline();
  const clock: Clock = {
    monotonicMs: () => timeline.nowMs,
    wallMs: () => STARTED_MS + timeline.nowMs,
    after: (ms, run) => timeline.after(ms, run),
  };
  const lease = { grantedMs: leaseMs, fencedMs: leaseMs, leaseName: '' };
  const state = {
    head: {
      sequence: 1,
      ...lease,
      created: true,
      deleted: false,
      isLending: false,
      lendingName: '',
      outlivesMs: 0,
      outlivesFenceMs: 0,
      members: 0,
      killed: [],
      ...start,
    } as Head,
    /** Batches of keys that a deleted API still has. */
    batches: 0,
    grants: true,
  };
  const steps: { atMs: number; step: string }[] = [];
  const done = (step: string) => void steps.push({ atMs: timeline.nowMs, step });
  const set = (change: Partial<Head>) => {
    state.head = { ...state.head, ...change };
  };
  const store: SweepStore = {
    ids: async () => ['a'],
    head: async () => state.head,
    createSharedLog: async () => undefined,
    setLease: async (_apiId, step, ms, name) => {
      done(`${step} ${ms} ${name}`);
      if (!state.grants) return false;
      if (step === 'grant') set({ grantedMs: ms, leaseName: name });
      else set({ fencedMs: ms, leaseName: name });
      return true;
    },
    setLending: async (_apiId, step, name) => {
      done(`${step} ${name}`);
      set(step === 'fence-last' ? { lendingName: '' } : { isLending: false });
      return true;
    },
    removeKeys: async () => {
      if (state.batches === 0) return false;
      state.batches--;
      done('remove keys');
      return true;
    },
    forget: async () => {
      done('forget');
      set({ created: false });
      return true;
    },
  };
  const reap = async (_apiId: string, killed: readonly KilledFollower[]) => {
    done(`reap ${killed.map(({ name, kill }) => `${name} ${kill}`).join(', ')}`);
    set({ killed: state.head.killed.filter((one) => !killed.some(({ name }) => name === one.name)) });
    return killed.length;
  };
  const log: ChangeLog = { write: refuse, check: refuse, close: refuse, reap };
  const fence = new Fence(log, clock, deposedMs, { ended: nothing, killed: nothing, reaped: nothing });
  const logger = createLogger('control-plane', 'silent');
  let n = 0;
  const newName = () => `t${++n}`;
  const sweep = new Sweep({ store, log, fence, clock, logger, leaseMs, deposedMs, newName });
  void sweep.run();
  return { timeline, state, set, steps, told: () => steps.map(({ step }) => step) };
}

describe('a killed follower', () => {
  const KILLED = [{ name: 'f', kill: -5 }];

  test.each([0, 4000])('is removed once a fence saw it (after %i ms)', async (deposedMs) => {
    const { timeline, steps } = sweepOf({ killed: KILLED }, 10_000, deposedMs);
    await timeline.run(60_000);
    const [{ atMs = 0, step = '' } = {}, ...more] = steps;
    expect([step, more]).toEqual(['reap f -5', []]);
    expect(atMs).toBeGreaterThanOrEqual(fenceMs(10_000, deposedMs));
    expect(atMs).toBeLessThanOrEqual(fenceMs(10_000, deposedMs) + TICK_MS);
  });

  test('is waited for anew when killed anew', async () => {
    const { timeline, set, steps, told } = sweepOf({ killed: [...KILLED, { name: 'g', kill: -6 }] });
    await timeline.run(6000);
    set({ killed: [{ name: 'f', kill: -7 }] });
    await timeline.run(60_000);
    expect(told()).toEqual(['reap f -7']);
    expect(steps[0]?.atMs).toBeGreaterThanOrEqual(6000 + fenceMs(10_000, 0));
  });

  test('is not looked for where there is none', async () => {
    const { timeline, told } = sweepOf({});
    await timeline.run(120_000);
    expect(told()).toEqual([]);
  });
});

describe('a deleted API', () => {
  test('loses its keys in batches before itself', async () => {
    const { timeline, state, set, steps, told } = sweepOf({});
    state.batches = 3;
    await timeline.run(5000);
    expect(told()).toEqual([]);
    set({ deleted: true });
    await timeline.run(120_000);
    expect(told()).toEqual(['remove keys', 'remove keys', 'remove keys', 'forget']);
    const [last, end] = [steps[2]?.atMs ?? 0, steps[3]?.atMs ?? 0];
    expect(end - last).toBeGreaterThanOrEqual(2 * fenceMs(10_000, 0));
    expect(end - last).toBeLessThanOrEqual(2 * fenceMs(10_000, 0) + 2 * TICK_MS);
  });

  test('is waited for again when deleted again', async () => {
    const { timeline, set, steps, told } = sweepOf({ deleted: true });
    await timeline.run(60_000);
    expect(told()).toEqual(['forget']);
    set({ created: true, deleted: false });
    await timeline.run(70_000);
    set({ deleted: true });
    await timeline.run(200_000);
    expect(told()).toEqual(['forget', 'forget']);
    expect(steps[1]?.atMs).toBeGreaterThanOrEqual(70_000 + 2 * fenceMs(10_000, 0));
  });
});

describe('a lease of the configuration', () => {
  test('fences wait for a longer one before its grant', async () => {
    const { timeline, told } = sweepOf({ grantedMs: 5000, fencedMs: 5000 });
    await timeline.run(120_000);
    expect(told()).toEqual([`fence-first 10000 ${STARTED_MS}.t1`, `grant 10000 ${STARTED_MS}.t1`]);
  });

  test('is not granted if fences cannot wait for it', async () => {
    const { timeline, state, told } = sweepOf({ grantedMs: 5000, fencedMs: 5000 });
    state.grants = false;
    await timeline.run(2500);
    expect(told()).toEqual(['t1', 't2', 't3'].map((name) => `fence-first 10000 ${STARTED_MS}.${name}`));
  });

  test('is granted at once if shorter', async () => {
    const { timeline, steps, told } = sweepOf({ grantedMs: 30_000, fencedMs: 30_000 });
    await timeline.run(120_000);
    expect(told()).toEqual([`grant 10000 ${STARTED_MS}.t1`, `fence-last 10000 ${STARTED_MS}.t1`]);
    const [granted, followed] = [steps[0]?.atMs ?? 0, steps[1]?.atMs ?? 0];
    expect(followed - granted).toBeGreaterThanOrEqual(fenceMs(30_000, 0));
    expect(followed - granted).toBeLessThanOrEqual(fenceMs(30_000, 0) + 2 * TICK_MS);
  });

  test('is left to whoever started later', async () => {
    const later = sweepOf({ grantedMs: 5000, fencedMs: 5000, leaseName: `${STARTED_MS + 1}.other` });
    await later.timeline.run(120_000);
    expect(later.told()).toEqual([]);
    const same = sweepOf({ grantedMs: 5000, fencedMs: 5000, leaseName: `${STARTED_MS}.other` });
    await same.timeline.run(120_000);
    expect(same.told()).toEqual([]);
    const earlier = sweepOf({ grantedMs: 5000, fencedMs: 5000, leaseName: `${STARTED_MS - 1}.other` });
    await earlier.timeline.run(120_000);
    expect(earlier.told()).toHaveLength(2);
  });
});

describe('tokens', () => {
  test('are waited for until a fence after their end', async () => {
    const { timeline, set, steps, told } = sweepOf({ isLending: true, lendingName: 'a' });
    await timeline.run(30_000);
    set({ isLending: false });
    await timeline.run(35_000);
    set({ lendingName: 'b' });
    await timeline.run(90_000);
    expect(told()).toEqual(['fence-last b']);
    expect(steps[0]?.atMs).toBeGreaterThanOrEqual(35_000 + fenceMs(10_000, 0));
  });
});
