import { type Clock, pause, Waker } from '../../process/clock.ts';
import type { ChangeLog, KilledFollower, LogEntry } from '../log/change-log-port.ts';
import { fenceMs } from '../timing.ts';

/** The end of a change: complete by acks or by fence, or `lost` if a failover lost it or may have. */
export type FenceOutcome = 'acks' | 'fence' | 'lost';

/** A change that not every follower is known to have. */
export interface PendingEntry {
  readonly apiId: string;
  readonly keyId: string;
  readonly sequence: number;
  readonly hash: string;
  /** Resolves once; possibly never while Redis is away. */
  readonly ended: Promise<FenceOutcome>;
  /** Latest time of completion by fence, on the monotonic clock, milliseconds. */
  readonly closesAtMs: number;
  /** As of the last check. */
  readonly replicated: boolean;
  readonly followers: number;
  /** The version of the record; undefined = not checked yet. */
  readonly version?: string | undefined;
  /** The outcome, once it has ended. */
  readonly outcome?: FenceOutcome;
}

/** Events of the fence, for logs and metrics. */
export interface FenceEvents {
  ended(outcome: FenceOutcome, apiId: string, sequence: number, tookMs: number): void;
  /** Followers did not acknowledge a change in time. */
  killed(apiId: string, followers: readonly Pick<KilledFollower, 'name'>[], sequence: number): void;
  /** Changes no longer wait for followers that `killed` reported. */
  reaped(apiId: string, followers: readonly Pick<KilledFollower, 'name'>[]): void;
}

/** The delay until changes are checked again, as a share of the time since the latest of them. */
const POLL_SHARE = 0.25;
const POLL_DELAY_MIN_MS = 1;
const POLL_DELAY_MAX_MS = 250;
/** Number of changes of one API that are checked together. */
const POLL_BATCH = 16;
/** Period of the no-ops that show whether all replicas have the writes before them. */
const COVER_PERIOD_MS = 1000;

interface Open extends PendingEntry {
  replicated: boolean;
  followers: number;
  version?: string | undefined;
  outcome?: FenceOutcome;
  readonly server: string;
  readonly startedAtMs: number;
  /** Number of changes that complete together with this one. */
  readonly changes: number;
  readonly end: (outcome: FenceOutcome) => void;
}

/**
 * Waits until changes are complete: either every registered follower has acknowledged them, or no lease of
 * one that has not can still be alive on this process's monotonic clock. A change is complete only while
 * the history and all replicas hold it.
 */
export class Fence {
  readonly #log: ChangeLog;
  readonly #clock: Clock;
  readonly #deposedMs: number;
  readonly #events: FenceEvents;
  readonly #apis = new Map<string, { open: Open[]; latestMs: number; readonly waker: Waker }>();
  readonly #stop = new AbortController();
  #pending = 0;

  /** @param deposedMs how long a deposed primary may still grant leases; 0 without replicas */
  constructor(log: ChangeLog, clock: Clock, deposedMs: number, events: FenceEvents) {
    this.#log = log;
    this.#clock = clock;
    this.#deposedMs = deposedMs;
    this.#events = events;
  }

  /** Number of changes that are not complete yet. */
  get pending(): number {
    return this.#pending;
  }

  /** Age of the oldest incomplete change, milliseconds; 0 if there is none. */
  get oldestMs(): number {
    const starts = [...this.#apis.values()].flatMap(({ open }) => open.map((change) => change.startedAtMs));
    return starts.length === 0 ? 0 : this.#clock.monotonicMs() - starts.reduce((a, b) => Math.min(a, b));
  }

  /**
   * Begins to watch a change; call it as soon as the write returns.
   * @param changes number of changes that complete together: this one and those written just before it
   */
  track(apiId: string, keyId: string, entry: LogEntry, changes = 1): PendingEntry {
    const { promise, resolve } = Promise.withResolvers<FenceOutcome>();
    const startedAtMs = this.#clock.monotonicMs();
    const open: Open = {
      apiId,
      keyId,
      sequence: entry.sequence,
      hash: entry.hash,
      server: entry.server,
      replicated: entry.replicated,
      followers: 0,
      startedAtMs,
      changes,
      closesAtMs: startedAtMs + this.durationMs(entry.leaseMs),
      ended: promise,
      end: resolve,
    };
    this.#pending += changes;
    const api = this.#apis.get(apiId);
    if (api) {
      api.open.push(open);
      api.open.sort((a, b) => a.sequence - b.sequence);
      api.latestMs = startedAtMs;
      api.waker.wake();
    } else {
      this.#apis.set(apiId, { open: [open], latestMs: startedAtMs, waker: new Waker() });
      void this.#poll(apiId);
    }
    return open;
  }

  /** Stops watching; open changes stay open. */
  stop(): void {
    this.#stop.abort();
    for (const { waker } of this.#apis.values()) waker.wake();
  }

  /** Returns F: the time until no lease from before a write can be alive, milliseconds. */
  durationMs(leaseMs: number): number {
    return fenceMs(leaseMs, this.#deposedMs);
  }

  /** Removes killed followers after another F, because they may have a lease that was granted after the change. */
  reapLater(apiId: string, killed: readonly KilledFollower[], leaseMs: number): void {
    if (killed.length > 0) void this.#reap(apiId, killed, this.durationMs(leaseMs));
  }

  /**
   * Checks the lowest open changes of an API until none is open. Acknowledgements are ordered, so the others
   * need no check.
   */
  async #poll(apiId: string): Promise<void> {
    const api = this.#apis.get(apiId);
    let coverAtMs = this.#clock.monotonicMs() + COVER_PERIOD_MS;
    let goesOn = false;
    while (api && api.open.length > 0) {
      const untilClose = Math.min(...api.open.slice(0, POLL_BATCH).map((change) => change.closesAtMs));
      const nowMs = this.#clock.monotonicMs();
      const share = Math.max(POLL_DELAY_MIN_MS, POLL_SHARE * (nowMs - api.latestMs));
      const delay = Math.min(POLL_DELAY_MAX_MS, share);
      const rest = untilClose - nowMs;
      api.waker.reset();
      if (!goesOn) await api.waker.pause(this.#clock, rest > 0 ? Math.min(delay, Math.ceil(rest)) : delay);
      if (this.#stop.signal.aborted) return;
      if (api.open.some((change) => !change.replicated) && this.#clock.monotonicMs() >= coverAtMs) {
        await this.#cover(apiId, api.open);
        coverAtMs = this.#clock.monotonicMs() + COVER_PERIOD_MS;
      }
      const ended = new Set<Open>();
      const lowest = api.open.slice(0, POLL_BATCH);
      await Promise.all(lowest.map(async (change) => (await this.#inspect(change)) && ended.add(change)));
      // If a whole batch has ended, the changes after it may have ended too.
      goesOn = ended.size === POLL_BATCH;
      if (ended.size > 0) {
        api.open = api.open.filter((change) => !ended.has(change));
        api.latestMs = this.#clock.monotonicMs();
      }
    }
    this.#apis.delete(apiId);
  }

  /** Checks one change and returns whether it has ended. An outage of Redis ends nothing. */
  async #inspect(change: Open): Promise<boolean> {
    const { apiId, keyId, sequence, hash, replicated } = change;
    try {
      const logStatus = await this.#log.check({ apiId, keyId, sequence, hash, replicated, names: 0 });
      if (logStatus.state === 'LOST') return this.#end(change, 'lost');
      if (logStatus.state === 'TRIMMED' && !change.replicated) return this.#end(change, 'lost');
      change.followers = logStatus.followers;
      change.version = logStatus.version;
      if (logStatus.replicatedSequence >= sequence) change.replicated = true;
      if (!change.replicated) return false;
      // Without the entry, this may be a deposed primary, whose members follow another history.
      const isHere = logStatus.state === 'INTACT';
      if (isHere && logStatus.laggards === 0) return this.#end(change, 'acks');
      if (this.#clock.monotonicMs() < change.closesAtMs) return false;
      const closing = await this.#log.close(apiId, change);
      if (closing.state === 'LOST') return this.#end(change, 'lost');
      change.followers = closing.followers;
      const removals = closing.removed.map((name) => ({ name }));
      this.#events.killed(apiId, [...removals, ...closing.killed], sequence);
      if (removals.length > 0) this.#events.reaped(apiId, removals);
      this.reapLater(apiId, closing.killed, closing.leaseMs);
      return this.#end(change, 'fence');
    } catch {
      return false; // unreachable or deposed: the change stays open and is checked again
    }
  }

  /** Writes a no-op that all replicas confirm, which proves that they have every earlier write too. */
  async #cover(apiId: string, open: readonly Open[]): Promise<void> {
    const changes = open.filter((change) => !change.replicated);
    try {
      const noop = await this.#log.write({ apiId, operation: 'noop', keyId: '', fields: {} });
      if (noop.status !== 'OK' || !noop.replicated) return;
      for (const change of changes) {
        const { keyId, sequence, hash } = change;
        // A deposed primary may answer this check, while its successor has the no-op but lacks the change.
        const question = { apiId, keyId, sequence, hash, replicated: false, names: 0, later: noop };
        const logStatus = await this.#log.check(question);
        if (logStatus.state === 'INTACT' && sequence < noop.sequence) change.replicated = true;
      }
    } catch {
      return; // tried again in the next period
    }
  }

  #end(change: Open, outcome: FenceOutcome): true {
    this.#pending -= change.changes;
    change.outcome = outcome;
    const tookMs = this.#clock.monotonicMs() - change.startedAtMs;
    this.#events.ended(outcome, change.apiId, change.sequence, tookMs);
    change.end(outcome);
    return true;
  }

  async #reap(apiId: string, killed: readonly KilledFollower[], afterMs: number): Promise<void> {
    await pause(this.#clock, afterMs, this.#stop.signal);
    while (!this.#stop.signal.aborted) {
      try {
        await this.#log.reap(apiId, killed);
        this.#events.reaped(apiId, killed);
        return;
      } catch {
        await pause(this.#clock, COVER_PERIOD_MS, this.#stop.signal);
      }
    }
  }
}
