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
  /** Token of the latest change of the lease. */
  readonly token: string;
  /** True if verifiers issue tokens. */
  readonly hasTokens: boolean;
  /** Token of the last switching on, while changes wait for tokens; else `''`. */
  readonly tokensFence: string;
  /** The time for which others accept a token after its end: as the API has it, and as changes wait for it. Milliseconds. */
  readonly leewayMs: number;
  readonly leewayFenceMs: number;
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

/** Steps of switching tokens and of changing their leeway; see set-tokens.lua. */
export type TokensStep = 'fence-first' | 'grant' | 'stop' | 'lower' | 'fence-last';

/**
 * Makes one step of switching tokens; returns whether it was made and all replicas have it.
 * @param leewayMs of `fence-first` and `lower`
 */
export type SetTokens = (
  apiId: string,
  step: TokensStep,
  token: string,
  leewayMs?: number,
) => Promise<boolean>;

/**
 * Makes changes of an API and of the shared log wait for tokens with this leeway, before verifiers may issue any of the API,
 * or others accept them for as long.
 * @returns true if they do; the caller then grants the API its tokens or the leeway, with the same token
 */
export async function fenceTokens(
  set: SetTokens,
  apiId: string,
  token: string,
  leewayMs: number,
): Promise<boolean> {
  // The API is first: whoever finds no API with tokens, or with this leeway, may end that of the shared log.
  for (const [id, step] of [
    [apiId, 'fence-first'],
    [SHARED_LOG, 'fence-first'],
    [SHARED_LOG, 'grant'],
  ] as const)
    if (!(await set(id, step, token, leewayMs))) return false;
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
  setLease(apiId: string, step: LeaseStep, leaseMs: number, token: string): Promise<boolean>;
  readonly setTokens: SetTokens;
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
  /** Token of this process's own change of the lease. */
  leaseToken?: string;
  /** A lowered lease, which fences may use once it was seen unchanged for one old fence. */
  lowering?: { token: string; sinceMs: number };
  /** Tokens that were switched off, for which changes wait until this was seen unchanged for one fence and their leeway. */
  endingTokens?: { token: string; sinceMs: number };
  /** A lowered leeway, which changes may wait for once it was seen unchanged for one fence and the old leeway. */
  loweringLeeway?: { token: string; leewayMs: number; sinceMs: number };
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
  readonly token?: () => string;
}

/**
 * Maintains APIs in the background: finds crashed followers with no-ops and removes them, applies a changed
 * lease, and removes deleted APIs. Every control plane does this without locks, because each step is either
 * conditional or harmless to repeat, and every process waits on its own clock.
 */
export class Sweep {
  readonly #options: SweepOptions;
  readonly #startedMs: number;
  readonly #token: () => string;
  readonly #observations = new Map<string, Observation>();
  readonly #stop = new AbortController();
  /** The shared log at the start of the pass over all APIs, and the largest leeway of APIs since; undefined = none has tokens. */
  #pass: { readonly token: string; readonly leewayMs: number; largestMs?: number } = {
    token: '',
    leewayMs: 0,
  };

  constructor(options: SweepOptions) {
    this.#options = options;
    this.#startedMs = options.clock.wallMs();
    this.#token = options.token ?? randomUUID;
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
      this.#pass = { token: head.hasTokens ? head.tokensFence : '', leewayMs: head.leewayFenceMs };
    else if (head.tokensFence !== '')
      this.#pass.largestMs = Math.max(this.#pass.largestMs ?? 0, head.leewayFenceMs);
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
    await this.#endTokens(apiId, head, observation);
    if (apiId !== SHARED_LOG) await this.#lowerLeeway(apiId, head, observation);
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
   * Applies the configured lease. The process that started last decides: the token begins with its start time
   * (on its own clock). So control planes with different leases, as in a roll-out, do not overwrite each
   * other in turns.
   */
  async #changeLease(apiId: string, head: Head, observation: Observation): Promise<void> {
    const { logger, leaseMs } = this.#options;
    const nowMs = this.#options.clock.monotonicMs();
    const set = (step: LeaseStep, token: string) => this.#options.store.setLease(apiId, step, leaseMs, token);
    if (head.grantedMs !== leaseMs) {
      const decidedMs = Number.parseInt(head.token, 10) || 0;
      if (decidedMs >= this.#startedMs && head.token !== observation.leaseToken) return;
      const token = `${this.#startedMs}.${this.#token()}`;
      observation.leaseToken = token;
      if (leaseMs > head.fencedMs && !(await set('fence-first', token))) return;
      if (!(await set('grant', token))) return;
      logger.info({ apiId, fromMs: head.grantedMs, toMs: leaseMs }, 'lease changed');
      return;
    }
    if (head.fencedMs <= head.grantedMs) return;
    if (observation.lowering?.token !== head.token)
      observation.lowering = { token: head.token, sinceMs: nowMs };
    if (nowMs - observation.lowering.sinceMs < fenceMs(head.fencedMs, this.#options.deposedMs)) return;
    await set('fence-last', head.token);
  }

  /** Ends the shared log's tokens where no API has any, and lowers their leeway to the largest of all APIs. */
  async #endPass(): Promise<void> {
    const { token, leewayMs, largestMs } = this.#pass;
    if (token === '') return;
    const { store } = this.#options;
    if (largestMs === undefined) await store.setTokens(SHARED_LOG, 'stop', token);
    else if (largestMs < leewayMs) await store.setTokens(SHARED_LOG, 'lower', token, largestMs);
  }

  /** Ends the wait for a leeway one fence and this leeway after it was lowered. */
  async #lowerLeeway(apiId: string, head: Head, observation: Observation): Promise<void> {
    const { clock, deposedMs, store } = this.#options;
    const { tokensFence: token, leewayMs, leewayFenceMs } = head;
    if (token === '' || leewayFenceMs <= leewayMs) return void delete observation.loweringLeeway;
    const earlier = observation.loweringLeeway;
    if (earlier?.token !== token || earlier.leewayMs !== leewayMs)
      observation.loweringLeeway = { token, leewayMs, sinceMs: clock.monotonicMs() };
    const { sinceMs } = observation.loweringLeeway ?? { sinceMs: clock.monotonicMs() };
    if (clock.monotonicMs() - sinceMs >= fenceMs(head.fencedMs, deposedMs) + leewayFenceMs)
      await store.setTokens(apiId, 'lower', token, leewayMs);
  }

  /** Ends the wait for tokens one fence and their leeway after they were switched off. */
  async #endTokens(apiId: string, head: Head, observation: Observation): Promise<void> {
    const { clock, deposedMs, store } = this.#options;
    const { tokensFence: token } = head;
    if (head.hasTokens || token === '') return void delete observation.endingTokens;
    if (observation.endingTokens?.token !== token)
      observation.endingTokens = { token, sinceMs: clock.monotonicMs() };
    const { sinceMs } = observation.endingTokens;
    if (clock.monotonicMs() - sinceMs >= fenceMs(head.fencedMs, deposedMs) + head.leewayFenceMs)
      await store.setTokens(apiId, 'fence-last', token);
  }

  /** Removes one batch of a deleted API's keys; two fences, and the leeway of tokens, after the last batch, removes the API. */
  async #takeApart(apiId: string, head: Head, observation: Observation, nowMs: number): Promise<void> {
    if (await this.#options.store.removeKeys(apiId)) return;
    observation.emptySinceMs ??= nowMs;
    const leewayMs = head.tokensFence === '' ? 0 : head.leewayFenceMs;
    if (nowMs - observation.emptySinceMs < 2 * fenceMs(head.fencedMs, this.#options.deposedMs) + leewayMs)
      return;
    if (!(await this.#options.store.forget(apiId))) return;
    this.#observations.delete(apiId);
    this.#options.logger.info({ apiId }, 'a deleted API is gone');
  }
}
