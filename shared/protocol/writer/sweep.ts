import { randomUUID } from 'node:crypto';
import { type Clock, pause } from '../../process/clock.ts';
import type { Logger } from '../../process/log.ts';
import { SHARED_LOG } from '../../redis/redis-keys.ts';
import type { ChangeLog, KilledFollower } from '../log/change-log-port.ts';
import { fenceMs } from '../timing.ts';
import type { Fence } from './fence.ts';

/** An API as the sweep sees it. */
export interface Head {
  readonly sequence: number;
  /** The lease that verifiers are granted now, milliseconds. */
  readonly grantedMs: number;
  /** The lease that fences wait for, milliseconds. */
  readonly fencedMs: number;
  /** Name of the latest change of the lease. */
  readonly leaseName: string;
  /** True if verifiers lend time to outsiders, as by tokens. */
  readonly isLending: boolean;
  /** Name of the latest call that allowed it, while changes wait for outsiders; else `''`. */
  readonly lendingName: string;
  /** For how long outsiders accept what they were lent after its end: as the API has it, and as changes wait for it. Milliseconds. */
  readonly outlivesMs: number;
  readonly outlivesFenceMs: number;
  readonly created: boolean;
  readonly deleted: boolean;
  readonly members: number;
  /** Followers that were killed and not yet removed. */
  readonly killed: readonly KilledFollower[];
}

/**
 * Steps of changing a lease. To raise it: `fence-first`, then `grant`. To lower it: `grant`, then, one old
 * fence later, `fence-last`, which does nothing if another call set the lease in between.
 */
export type LeaseStep = 'fence-first' | 'grant' | 'fence-last';

/** Steps of beginning or ending to lend time, and of changing for how long it is accepted; see set-lending.lua. */
export type LendingStep = 'fence-first' | 'grant' | 'stop' | 'lower' | 'fence-last';

/**
 * Makes one step; returns whether it was made and all replicas have it.
 * @param name of the call that makes the steps
 * @param outlivesMs of `fence-first` and `lower`
 */
export type SetLending = (
  apiId: string,
  step: LendingStep,
  name: string,
  outlivesMs?: number,
) => Promise<boolean>;

/**
 * Makes changes of an API and of the shared log wait for outsiders, and for so long, before verifiers may lend them any time,
 * or they accept it for as long.
 * @returns true if they do; the caller then lets the API lend, or sets the time, with the same name
 */
export async function fenceLending(
  set: SetLending,
  apiId: string,
  name: string,
  outlivesMs: number,
): Promise<boolean> {
  // The API is first: whoever finds no API that lends, or for as long, may end the wait of the shared log.
  for (const [id, step] of [
    [apiId, 'fence-first'],
    [SHARED_LOG, 'fence-first'],
    [SHARED_LOG, 'grant'],
  ] as const)
    if (!(await set(id, step, name, outlivesMs))) return false;
  return true;
}

/** The sweep's operations on Redis besides the change log. Every method rejects with SERVICE_UNAVAILABLE. */
export interface SweepStore {
  /**
   * At most `limit` ids of APIs in order, those after `after`; '' = from the start, which is the shared log.
   */
  ids(after: string, limit: number): Promise<string[]>;
  head(apiId: string): Promise<Head>;
  /**
   * Creates the shared log if it does not exist: verifiers follow it as soon as they meet a key with an
   * `externalId`.
   */
  createSharedLog(leaseMs: number): Promise<void>;
  /** Makes one step of changing a lease; returns whether it was made and all replicas have it. */
  setLease(apiId: string, step: LeaseStep, leaseMs: number, name: string): Promise<boolean>;
  readonly setLending: SetLending;
  /** Removes a batch of a deleted API's keys; returns whether there were any. */
  removeKeys(apiId: string): Promise<boolean>;
  /** Removes a deleted API that has no keys left; returns whether it is gone. */
  forget(apiId: string): Promise<boolean>;
}

/** Pause between two pages of APIs, and the size of a page; together they bound the sweep's load on Redis. */
export const TICK_MS = 1000;
const APIS_PER_TICK = 200;
/**
 * Time after which an idle log with followers gets a no-op, so that crashed followers are found before a
 * disable has to wait for them.
 */
export const IDLE_MS = 30_000;

/** Observations of an API by this control plane, on its own monotonic clock. */
interface Observation {
  sequence: number;
  sinceMs: number;
  /** Killed followers, by name and kill, and when this process first saw each. */
  killed: Map<string, { killed: KilledFollower; sinceMs: number }>;
  /** Time at which this process first saw that the deleted API had no keys left. */
  emptySinceMs?: number;
  /** Name of this process's own change of the lease. */
  leaseName?: string;
  /** A lowered lease, which fences may use once it was seen unchanged for one old fence. */
  lowering?: { name: string; sinceMs: number };
  /** An end of lending: changes wait for outsiders until it was seen unchanged for one fence and what lent time outlives it. */
  endingLending?: { name: string; sinceMs: number };
  /** A shorter time for which outsiders accept: changes may wait for it once it was seen unchanged for one fence and the old one. */
  loweringOutlives?: { name: string; outlivesMs: number; sinceMs: number };
}

interface SweepOptions {
  readonly store: SweepStore;
  readonly log: ChangeLog;
  readonly fence: Fence;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly leaseMs: number;
  readonly deposedMs: number;
  /** Returns a unique name for a change of the lease. */
  readonly newName?: () => string;
}

/**
 * Maintains APIs in the background: finds crashed followers with no-ops and removes them, applies a changed
 * lease, and removes deleted APIs. Every control plane does this without locks, because each step is either
 * conditional or harmless to repeat, and every process waits on its own clock.
 */
export class Sweep {
  readonly #options: SweepOptions;
  readonly #startedMs: number;
  readonly #newName: () => string;
  readonly #observations = new Map<string, Observation>();
  readonly #stop = new AbortController();
  /** The shared log at the start of the pass over all APIs, and the longest time of APIs since; undefined = none lends. */
  #pass: { readonly name: string; readonly outlivesMs: number; longestMs?: number } = {
    name: '',
    outlivesMs: 0,
  };

  constructor(options: SweepOptions) {
    this.#options = options;
    this.#startedMs = options.clock.wallMs();
    this.#newName = options.newName ?? randomUUID;
  }

  /** Sweeps until `stop`; never rejects. */
  async run(): Promise<void> {
    let after = '';
    while (!this.#stop.signal.aborted) {
      try {
        const ids = await this.#options.store.ids(after, APIS_PER_TICK);
        for (const apiId of ids) await this.#visit(apiId);
        after = ids.length < APIS_PER_TICK ? '' : (ids.at(-1) ?? '');
        if (after === '') await this.#endPass();
      } catch (error) {
        this.#options.logger.debug({ err: error }, 'the sweep is waiting for Redis');
      }
      await pause(this.#options.clock, TICK_MS, this.#stop.signal);
    }
  }

  stop(): void {
    this.#stop.abort();
  }

  async #visit(apiId: string): Promise<void> {
    const head = await this.#options.store.head(apiId);
    if (!head.created) {
      this.#observations.delete(apiId);
      if (apiId === SHARED_LOG) await this.#options.store.createSharedLog(this.#options.leaseMs);
      return;
    }
    if (apiId === SHARED_LOG)
      this.#pass = { name: head.isLending ? head.lendingName : '', outlivesMs: head.outlivesFenceMs };
    else if (head.lendingName !== '')
      this.#pass.longestMs = Math.max(this.#pass.longestMs ?? 0, head.outlivesFenceMs);
    const nowMs = this.#options.clock.monotonicMs();
    const observation = this.#observations.get(apiId) ?? {
      sequence: -1,
      sinceMs: nowMs,
      killed: new Map(),
    };
    this.#observations.set(apiId, observation);
    if (observation.sequence !== head.sequence)
      Object.assign(observation, { sequence: head.sequence, sinceMs: nowMs });
    await this.#reapKilled(apiId, head, observation, nowMs);
    if (head.deleted) return this.#takeApart(apiId, head, observation, nowMs);
    if (head.grantedMs !== this.#options.leaseMs || head.fencedMs !== this.#options.leaseMs)
      await this.#changeLease(apiId, head, observation);
    await this.#endLending(apiId, head, observation);
    if (apiId !== SHARED_LOG) await this.#lowerOutlives(apiId, head, observation);
    if (head.members > 0 && nowMs - observation.sinceMs >= IDLE_MS) await this.#ping(apiId, head.sequence);
  }

  /** Writes a no-op, unless another write came first. Its fence removes or kills followers that do not answer. */
  async #ping(apiId: string, sequence: number): Promise<void> {
    const write = { apiId, operation: 'noop', keyId: '', fields: {}, condition: String(sequence) } as const;
    const result = await this.#options.log.write(write);
    if (result.status === 'OK') this.#options.fence.track(apiId, '', result);
  }

  /** Removes followers that this process has seen killed for one fence on its own clock. */
  async #reapKilled(apiId: string, head: Head, observation: Observation, nowMs: number): Promise<void> {
    const fence = fenceMs(head.fencedMs, this.#options.deposedMs);
    observation.killed = new Map(
      head.killed.map((killed) => {
        const id = `${killed.name} ${killed.kill}`;
        return [id, observation.killed.get(id) ?? { killed, sinceMs: nowMs }];
      }),
    );
    const due = [...observation.killed.values()].filter(({ sinceMs }) => nowMs - sinceMs >= fence);
    if (due.length > 0)
      await this.#options.log.reap(
        apiId,
        due.map(({ killed }) => killed),
      );
  }

  /**
   * Applies the configured lease. The process that started last decides: the name begins with its start time
   * (on its own clock). So control planes with different leases, as in a roll-out, do not overwrite each
   * other in turns.
   */
  async #changeLease(apiId: string, head: Head, observation: Observation): Promise<void> {
    const { logger, leaseMs } = this.#options;
    const nowMs = this.#options.clock.monotonicMs();
    const set = (step: LeaseStep, name: string) => this.#options.store.setLease(apiId, step, leaseMs, name);
    if (head.grantedMs !== leaseMs) {
      const decidedMs = Number.parseInt(head.leaseName, 10) || 0;
      if (decidedMs >= this.#startedMs && head.leaseName !== observation.leaseName) return;
      const name = `${this.#startedMs}.${this.#newName()}`;
      observation.leaseName = name;
      if (leaseMs > head.fencedMs && !(await set('fence-first', name))) return;
      if (!(await set('grant', name))) return;
      logger.info({ apiId, fromMs: head.grantedMs, toMs: leaseMs }, 'lease changed');
      return;
    }
    if (head.fencedMs <= head.grantedMs) return;
    if (observation.lowering?.name !== head.leaseName)
      observation.lowering = { name: head.leaseName, sinceMs: nowMs };
    if (nowMs - observation.lowering.sinceMs < fenceMs(head.fencedMs, this.#options.deposedMs)) return;
    await set('fence-last', head.leaseName);
  }

  /** Ends what the shared log lends where no API lends any time, and lowers for how long it is accepted to the longest of all APIs. */
  async #endPass(): Promise<void> {
    const { name, outlivesMs, longestMs } = this.#pass;
    if (name === '') return;
    const { store } = this.#options;
    if (longestMs === undefined) await store.setLending(SHARED_LOG, 'stop', name);
    else if (longestMs < outlivesMs) await store.setLending(SHARED_LOG, 'lower', name, longestMs);
  }

  /** Lets changes wait for a shorter time one fence and the old time after it was lowered. */
  async #lowerOutlives(apiId: string, head: Head, observation: Observation): Promise<void> {
    const { clock, deposedMs, store } = this.#options;
    const { lendingName: name, outlivesMs, outlivesFenceMs } = head;
    if (name === '' || outlivesFenceMs <= outlivesMs) return void delete observation.loweringOutlives;
    const earlier = observation.loweringOutlives;
    if (earlier?.name !== name || earlier.outlivesMs !== outlivesMs)
      observation.loweringOutlives = { name, outlivesMs, sinceMs: clock.monotonicMs() };
    const { sinceMs } = observation.loweringOutlives ?? { sinceMs: clock.monotonicMs() };
    if (clock.monotonicMs() - sinceMs >= fenceMs(head.fencedMs, deposedMs) + outlivesFenceMs)
      await store.setLending(apiId, 'lower', name, outlivesMs);
  }

  /** Ends the wait for outsiders one fence, and what lent time outlives it, after lending ended. */
  async #endLending(apiId: string, head: Head, observation: Observation): Promise<void> {
    const { clock, deposedMs, store } = this.#options;
    const { lendingName: name } = head;
    if (head.isLending || name === '') return void delete observation.endingLending;
    if (observation.endingLending?.name !== name)
      observation.endingLending = { name, sinceMs: clock.monotonicMs() };
    const { sinceMs } = observation.endingLending;
    if (clock.monotonicMs() - sinceMs >= fenceMs(head.fencedMs, deposedMs) + head.outlivesFenceMs)
      await store.setLending(apiId, 'fence-last', name);
  }

  /** Removes one batch of a deleted API's keys; two fences, and what lent time outlives them, after the last batch, the API. */
  async #takeApart(apiId: string, head: Head, observation: Observation, nowMs: number): Promise<void> {
    if (await this.#options.store.removeKeys(apiId)) return;
    observation.emptySinceMs ??= nowMs;
    const outlivesMs = head.lendingName === '' ? 0 : head.outlivesFenceMs;
    if (nowMs - observation.emptySinceMs < 2 * fenceMs(head.fencedMs, this.#options.deposedMs) + outlivesMs)
      return;
    if (!(await this.#options.store.forget(apiId))) return;
    this.#observations.delete(apiId);
    this.#options.logger.info({ apiId }, 'a deleted API is gone');
  }
}
