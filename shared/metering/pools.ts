import { backoffMs, type Clock, instant, pause } from '../process/clock.ts';
import type {
  Companion,
  CompanionHost,
  Held,
  Metered,
  NewCompanion,
} from '../protocol/follower/companion.ts';
import { limitPool, type Window } from '../protocol/records/limits-in-memory.ts';
import { unavailable } from '../rules/errors.ts';
import type { Waiter } from './demand.ts';
import type { Exchanges, PoolReply } from './exchange.ts';
import { IDLE_MS, Pool, type PoolHost } from './pool.ts';

/** Maximum number of pools in one call, because Redis serves nobody else during a call. */
const BATCH_MAX = 50;
/**
 * Maximum number of pools in memory, 1.3 KB each: enough for 10,000 keys in constant use, with credits and a
 * limit. Only pools whose state Redis does not know completely may exceed this number, and they are soon idle.
 */
const POOLS_MAX = 25_000;
const REPORT_FIRST_MS = 100;
const REPORT_MAX_MS = 10_000;
/** Redis forgets a name one day after its latest exchange. */
const REPORT_ATTEMPTS_MAX = 8640;

/** Counts since the start, of all pools of a verifier, for metrics. */
export interface CreditCounts {
  /** Calls to Redis. */
  exchanges: number;
  failed: number;
  /** Turns about credits that got nothing because other verifiers did not give back in time. */
  withheld: number;
  /** Turns about rate limits that got nothing for the same reason. */
  limitsWithheld: number;
  recalls: number;
}

export const creditCounts = (): CreditCounts => ({
  exchanges: 0,
  failed: 0,
  withheld: 0,
  limitsWithheld: 0,
  recalls: 0,
});

/** The part that all pools of a verifier have in common. */
export interface PoolsOptions {
  readonly exchanges: Exchanges;
  /** Time for which a slice should last, in milliseconds; 0 = no slices. */
  readonly sliceMs: number;
  readonly counts: CreditCounts;
}

/** Lets followers have pools. */
export const withPools =
  (options: PoolsOptions): NewCompanion =>
  (host) =>
    new Pools(options, host);

/** Returns the pools of a follower that has them. */
export function poolsOf(companion: Companion): Pools {
  if (companion instanceof Pools) return companion;
  throw new TypeError('this follower has no pools');
}

/** Names of all pools that requests about a record take from, except those of limits that a question defines. */
const poolNames = ({ limitsId, pool, limits = [] }: Metered): string[] => [
  ...(pool ? [pool] : []),
  ...limits.map((limit) => limitPool(limitsId, limit)),
];

/** Pools that wait for an exchange. */
interface Lane {
  readonly queue: Set<Pool>;
  isBusy: boolean;
}

/**
 * The recently used pools of credits and rate limits under one name of a follower. There is one call to Redis
 * at a time, which serves all waiting requests; if credits wait for replicas, one about credits and one about limits.
 */
export class Pools implements Companion {
  readonly #options: PoolsOptions;
  readonly #follower: CompanionHost;
  readonly #clock: Clock;
  readonly #host: PoolHost;
  readonly #pools = new Map<string, Pool>();
  readonly #lane: Lane = { queue: new Set(), isBusy: false };
  readonly #laneOfCredits: Lane;
  #turn = 0;
  #isWatched = false;
  /** Present once the use of this name has ended. */
  #closing: AbortSignal | undefined;
  /** Pools of credits of which Redis has yet to hear after the end. */
  readonly #open = new Set<Pool>();
  #isReporting = false;

  constructor(options: PoolsOptions, follower: CompanionHost) {
    this.#options = options;
    this.#follower = follower;
    this.#clock = follower.clock;
    this.#laneOfCredits = options.exchanges.awaitsReplicas ? { queue: new Set(), isBusy: false } : this.#lane;
    this.#host = {
      request: (pool) => this.#request(pool),
      isLive: () => follower.isLive(),
      position: () => follower.position(),
    };
  }

  /** Number of the pools that are rate limits, for metrics. */
  get limits(): number {
    let limits = 0;
    for (const { window } of this.#pools.values()) if (window) limits++;
    return limits;
  }

  /** True while something of a pool is held. */
  get isHeld(): boolean {
    return [...this.#pools.values()].some(({ isHeld }) => isHeld);
  }

  /** Number of the pools that are credits, for metrics. */
  get credits(): number {
    return this.#pools.size - this.limits;
  }

  /** Credits that can be spent without asking Redis. */
  get available(): number {
    return [...this.#pools.values()].reduce((sum, pool) => (pool.window ? sum : sum + pool.available), 0);
  }

  /**
   * Returns a pool; creates it if necessary.
   * @param window current window of a rate limit; undefined = credits
   * @param obeyedAtMs time from which on every verifier obeys all changes of the limit that were applied here
   */
  get(id: string, window?: Window, obeyedAtMs = 0): Pool {
    const present = this.#pools.get(id);
    if (present) {
      present.window = window;
      if (obeyedAtMs > 0) present.heed(obeyedAtMs);
      return present;
    }
    const pool = new Pool(id, this.#clock, this.#options.sliceMs, this.#host, window);
    pool.heed(obeyedAtMs);
    this.#pools.set(id, pool);
    this.#watch();
    return pool;
  }

  changed(records: readonly Metered[]): void {
    for (const id of new Set(records.flatMap(poolNames))) this.#pools.get(id)?.applyChange();
  }

  recall(id: string): void {
    const pool = this.#pools.get(id);
    if (pool === undefined) return;
    this.#options.counts.recalls++;
    pool.recall();
  }

  /** The places that are held. What else is held comes back under this name. */
  held(): Pool[] {
    return [...this.#pools.values()].filter((pool) => pool.hasPlaces && pool.isHeld);
  }

  /**
   * Tells Redis of all places that are held, and gives the others back: a new primary may lack those that were granted
   * last, and has granted them to others.
   */
  reconnected(): void {
    for (const pool of this.#pools.values()) if (pool.hasPlaces) pool.tellPlaces();
  }

  /** Goes on with places that are held under a former name. Resolves when Redis counts them under this one. */
  async bring(held: readonly Held[]): Promise<void> {
    const places = held.filter((each) => each instanceof Pool);
    for (const pool of places) {
      pool.rename(this.#host);
      this.#pools.set(pool.id, pool);
    }
    for (let i = 0; i < places.length; i += BATCH_MAX) {
      const replies = await this.#exchange(places.slice(i, i + BATCH_MAX));
      if (replies.some(({ status }) => status !== 'OK')) throw unavailable('not in sync with Redis');
    }
    if (places.length > 0) this.#watch();
  }

  /** Rejects all waiting requests, and reports to Redis what was spent, as often as necessary. */
  async close(signal: AbortSignal): Promise<void> {
    if (this.#closing) return;
    this.#closing = signal;
    for (const pool of this.#pools.values()) {
      pool.end(unavailable('not in sync with Redis'));
      // The rest of a window is lost when the window ends, and places are free without this name.
      if (!pool.window && !pool.isReported) this.#open.add(pool);
    }
    await this.#reportAll(signal);
  }

  async #reportAll(signal: AbortSignal): Promise<void> {
    this.#isReporting = true;
    for (let attempt = 0; this.#open.size > 0 && attempt < REPORT_ATTEMPTS_MAX; ) {
      const batch = [...this.#open].slice(0, BATCH_MAX);
      for (const pool of batch) this.#open.delete(pool);
      try {
        await this.#exchange(batch);
      } catch {
        if (signal.aborted) return; // the rest is lost with this process
        for (const pool of batch) this.#open.add(pool);
        const waitMs = backoffMs(attempt++, REPORT_FIRST_MS, REPORT_MAX_MS, () => 0.5);
        await pause(this.#clock, waitMs, signal);
      }
    }
    this.#isReporting = false;
  }

  #request(pool: Pool): void {
    if (this.#closing) {
      // What was held under this name comes back after its end.
      if (pool.window || !pool.isReleased) return;
      this.#open.add(pool);
      if (!this.#isReporting) void this.#reportAll(this.#closing);
      return;
    }
    const lane = pool.window ? this.#lane : this.#laneOfCredits;
    lane.queue.add(pool);
    if (!lane.isBusy) void this.#serve(lane);
  }

  async #serve(lane: Lane): Promise<void> {
    lane.isBusy = true;
    while (lane.queue.size > 0 && !this.#closing) {
      const batch: Pool[] = [];
      for (const pool of lane.queue) {
        if (batch.push(pool) === BATCH_MAX) break;
      }
      for (const pool of batch) lane.queue.delete(pool);
      await this.#exchange(batch).catch(() => undefined); // the waiting requests got the error
    }
    lane.isBusy = false;
  }

  async #exchange(pools: readonly Pool[]): Promise<readonly PoolReply[]> {
    const turnsByPool = pools.flatMap((pool) => {
      const turn = pool.isForgotten ? undefined : pool.beginTurn(++this.#turn);
      return turn ? [{ pool, turn }] : [];
    });
    if (turnsByPool.length === 0) {
      this.#makeRoom(pools);
      return [];
    }
    const { counts } = this.#options;
    counts.exchanges++;
    try {
      const turns = turnsByPool.map(({ turn }) => turn);
      const { apiId, member } = this.#follower;
      const replies = await this.#options.exchanges.exchange(apiId, member, turns);
      let isBehind = false;
      // One reply serves several pools, and a request may wait for several of them.
      const woken = new Set<Waiter>();
      for (const [i, { pool, turn }] of turnsByPool.entries()) {
        const reply = replies[i];
        if (reply?.turn !== turn.turn) throw unavailable('a reply from Redis was meant for another request');
        const isNone = reply.status === 'STALE' || reply.status === 'FULL';
        if (isNone && this.#pools.get(pool.id) === pool) this.#pools.delete(pool.id);
        if (reply.status === 'HELD') counts[pool.window ? 'limitsWithheld' : 'withheld']++;
        isBehind ||= reply.status === 'STALE' || reply.status === 'NOREG';
        pool.takeReply(reply, woken);
      }
      for (const waiter of woken) waiter.again();
      for (const [i, { pool }] of turnsByPool.entries()) pool.endTurn(replies[i] as PoolReply);
      this.#makeRoom(pools);
      if (isBehind && !this.#closing) this.#follower.onBehind();
      return replies;
    } catch (error) {
      counts.failed++;
      for (const { pool, turn } of turnsByPool) pool.failTurn(turn.turn, error);
      throw error;
    }
  }

  /**
   * If there are too many pools, drops the oldest, but examines at most twice as many as were served. If that is
   * not enough, because the oldest are still waiting, drops those that were served. Call it only while no caller
   * has a pool at hand: a second pool of the same name would not know what the first one spent.
   */
  #makeRoom(served: readonly Pool[]): void {
    let looks = 0;
    for (const [id, pool] of this.#pools) {
      if (this.#pools.size <= POOLS_MAX || looks++ === 2 * served.length) break;
      this.#pools.delete(id);
      if (!pool.isOver) this.#pools.set(id, pool);
    }
    for (const pool of served) {
      if (this.#pools.size <= POOLS_MAX) return;
      if (pool.isOver && this.#pools.get(pool.id) === pool) this.#pools.delete(pool.id);
    }
  }

  /** Gives back idle pools, and forgets them once Redis has everything. */
  #watch(): void {
    if (this.#isWatched || this.#closing) return;
    this.#isWatched = true;
    this.#clock.after(IDLE_MS / 4, () => {
      this.#isWatched = false;
      const now = instant(this.#clock);
      for (const [id, pool] of this.#pools) {
        if (pool.isIdle(now) && pool.isOver) this.#pools.delete(id);
        else if (pool.isIdle(now) && !pool.isReported) pool.giveBack();
        else if (pool.isStale(now)) this.#request(pool);
      }
      if (this.#pools.size > 0) this.#watch();
    });
  }
}
