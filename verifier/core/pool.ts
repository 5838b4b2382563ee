import type { Clock } from '#shared/process/clock.ts';
import type { Deadlines } from '#shared/process/deadlines.ts';
import { ApiError } from '#shared/rules/errors.ts';
import { type Instant, instant } from './lease.ts';
import { isPlaces, type Window } from './limits.ts';
import type { PoolReply, PoolTurn } from './redis-port.ts';

const tooMany = () =>
  new ApiError(
    'RATE_LIMITED',
    'ratelimits: too many different limits were defined for this key in questions; use fewer, or try again later',
  );

/**
 * Longest time that holders get to give back recalled credits, in milliseconds. After that, the verdict does
 * without them.
 */
export const RECALL_MS = 50;
/** Time without a request after which everything is given back, in milliseconds. */
export const IDLE_MS = 2000;
/** Time after a recall in which the pool takes no more than its requests need, in milliseconds. */
const RECALLED_MS = 5000;
/** Longest time for which a refusal, or the remaining amount, is remembered, in milliseconds. */
const KNOWN_MS = 1000;
/** Longest time to remember a rate limit's refusal while nobody can give back, in milliseconds. */
const REFUSED_WINDOW_MS = 60_000;
/** Longest time to remember that no place was free, in milliseconds. */
const REFUSED_PLACE_MS = 100;
/** Time in which a pool gathers what comes back before it tells Redis, in milliseconds. */
const RELEASE_MS = 10;
/** Pause before asking Redis again for credits that others are giving back, in milliseconds. */
const RETRY_MS = 5;
/** Longest time for which a grant in a window is used without asking again, in milliseconds. */
const GRANTED_MS = 4000;
/** Time after which a question that found no free place may be asked again, in milliseconds. */
const RETRY_PLACE_MS = 1000;
/** Clocks of two machines differ by less than this factor in speed. */
const DRIFT = 1.03;
/** A slice lasts for at most this part of a window. */
const SLICE_PART = 1 / 8;

/**
 * One follower's share of one pool's credits. A follower registers under a new name each time it starts
 * afresh; `granted` and `spent` are totals since it took its current name. Redis counts everything granted as
 * gone. After any failure both totals are reported again, so that nothing is counted twice and no spent credit
 * is granted to others. A rate limit starts anew with each window; a grant is worth nothing in the next. Of places,
 * which are free again once their work has ended, `spent` is how many are taken now.
 */
export class Pool {
  readonly id: string;
  /** True = nothing more is granted to this pool. */
  isEnded = false;
  /** undefined = credits. Changes with the limit. */
  window: Window | undefined;
  readonly #clock: Clock;
  readonly #sliceMs: number;
  readonly #request: (pool: Pool) => void;
  readonly #waiters = new Waiters();
  /** The window of the numbers below; undefined = none. */
  #number: number | undefined;
  /** End of the grant, on both clocks like a lease: the monotonic clock stops while a machine is suspended. */
  #until: Instant = { monotonicMs: Number.POSITIVE_INFINITY, wallMs: Number.POSITIVE_INFINITY };
  /** End of the window itself, on the monotonic clock. */
  #endsMs = Number.POSITIVE_INFINITY;
  #resetMs = 0;
  #sentAt: Instant = { monotonicMs: 0, wallMs: 0 };
  #granted = 0;
  /** undefined = as in Redis: nothing was spent here yet. */
  #spent: number | undefined;
  #remaining: number | undefined;
  /** The turn whose reply counts; 0 = none. */
  #turn = 0;
  #reportedSpent = 0;
  /** The time until which `#remaining` is used without asking. */
  #knownUntilMs = 0;
  /** True while Redis counts nothing as held here. */
  #settled = true;
  /** True = the next turn gives everything back. */
  #returns = false;
  #slice = 0;
  #refusedBelow = 0;
  #refusedUntilMs = 0;
  /** Expected time of the next refill or window; infinity = unknown. */
  #refillAtMs = Number.POSITIVE_INFINITY;
  #recalledUntilMs = 0;
  readonly #rate = new SpendingRate();
  #usedAtMs: number;
  /** Accepted questions whose work has not ended. */
  #holds = 0;
  /** True = more came back than Redis has heard of. */
  #isReleased = false;

  /** @param request schedules a turn of this pool */
  constructor(
    id: string,
    clock: Clock,
    sliceMs: number,
    request: (pool: Pool) => void,
    window: Window | undefined,
  ) {
    this.id = id;
    this.window = window;
    this.#clock = clock;
    this.#sliceMs = sliceMs;
    this.#request = request;
    this.#usedAtMs = clock.monotonicMs();
  }

  /** Number that can be spent without asking Redis. */
  get available(): number {
    return this.#availableAt(instant(this.#clock));
  }

  #availableAt(now: Instant): number {
    return this.#spent === undefined || this.#isOver(now) ? 0 : this.#granted - this.#spent;
  }

  /** True while Redis needs to hear nothing more from this pool. */
  get isSettled(): boolean {
    if (this.#turn !== 0 || this.#waiters.size > 0) return false;
    return this.isWindow ? this.available === 0 : this.#settled;
  }

  /** True if this pool may be forgotten. What is held would otherwise come back to another of the same name. */
  get isOver(): boolean {
    return this.#holds === 0 && this.isSettled;
  }

  /** True while something of this pool is held. */
  get isHeld(): boolean {
    return this.#holds > 0;
  }

  /** True if this pool is a rate limit. */
  get isWindow(): boolean {
    return this.window !== undefined && !isPlaces(this.window);
  }

  get #hasPlaces(): boolean {
    return this.window !== undefined && isPlaces(this.window);
  }

  /** True while this pool has never heard from Redis, and whoever asked has given up. */
  get isForgotten(): boolean {
    return this.#spent === undefined && this.#settled && !this.#returns && this.#waiters.size === 0;
  }

  isIdle({ monotonicMs }: Instant): boolean {
    return monotonicMs - this.#usedAtMs >= IDLE_MS && this.#waiters.size === 0;
  }

  /** Returns true if this pool has held something so long that a new report to Redis is due. */
  isStale(now: Instant): boolean {
    const sinceMs = this.#knownUntilMs - KNOWN_MS;
    return now.monotonicMs >= sinceMs + Math.max(this.#sliceMs, KNOWN_MS) && this.#availableAt(now) > 0;
  }

  /** Milliseconds until a refused request may be repeated; undefined = unknown. */
  get retryMs(): number | undefined {
    if (this.#hasPlaces) return RETRY_PLACE_MS;
    if (this.#refillAtMs === Number.POSITIVE_INFINITY) return undefined;
    return Math.max(0, this.#refillAtMs - this.#clock.monotonicMs());
  }

  /** Returns the end of the current window, in Unix milliseconds of Redis' clock. */
  resetMs(nowMs: number): number {
    const { durationMs = 0, calendar } = this.window ?? {};
    if (nowMs < this.#endsMs || durationMs === 0 || calendar) return this.#resetMs;
    return this.#resetMs + durationMs * Math.floor(1 + (nowMs - this.#endsMs) / durationMs);
  }

  /** The number left, as far as is known here. */
  get remaining(): number {
    return Math.max(0, this.#remaining ?? 0);
  }

  /** Returns the outlook for this cost, without spending; undefined = the caller must ask Redis (`ask`). */
  look(cost: number, now: Instant): 'enough' | 'too little' | undefined {
    const nowMs = now.monotonicMs;
    this.#usedAtMs = nowMs;
    if (this.#remaining === undefined) return undefined;
    if (this.#spent !== undefined && this.#granted - this.#spent >= cost && !this.#isOver(now))
      // A request that takes nothing would otherwise get the same old remaining number for ever.
      return cost === 0 && nowMs >= this.#knownUntilMs ? undefined : 'enough';
    return cost > 0 && nowMs < this.#refusedUntilMs && cost >= this.#refusedBelow ? 'too little' : undefined;
  }

  /** Spends the cost for which `look` returned `enough`, in the same synchronous block. */
  take(cost: number, nowMs: number): void {
    if (cost === 0 || this.#spent === undefined || this.#remaining === undefined) return;
    this.#rate.spent(cost, nowMs);
    this.#spent += cost;
    this.#remaining -= cost;
    this.#settled = false;
    if (this.#turn === 0 && 2 * (this.#granted - this.#spent) < this.#slice) this.#request(this);
  }

  /** True while more came back than Redis has heard of. */
  get isReleased(): boolean {
    return this.#isReleased;
  }

  /** Keeps this pool until `release`. */
  hold(): void {
    this.#holds++;
  }

  /** Ends a hold, and takes back what it did not need of what `take` spent. */
  release(unneeded: number): void {
    this.#holds--;
    if (unneeded === 0 || this.#spent === undefined) return;
    this.#spent -= unneeded;
    if (this.#remaining !== undefined) this.#remaining += unneeded;
    this.#settled = false;
    if (!this.#isReleased) this.#clock.after(RELEASE_MS, this.#tellReleased);
    this.#isReleased = true;
  }

  /** Others may wait for what came back, unless it was taken again already. */
  readonly #tellReleased = (): void => {
    if (!this.#isReleased) return;
    if (this.#turn !== 0) return void this.#clock.after(RELEASE_MS, this.#tellReleased);
    // While Redis knows of a slice here, it recalls that and hears of the rest.
    const spare = this.#granted - (this.#spent ?? 0);
    if (this.isEnded || spare > 2 * this.#slice) this.#request(this);
    else this.#isReleased = false;
  };

  /** Adds a waiter (only once), and asks Redis. */
  ask(waiter: Waiter, cost: number): void {
    this.#waiters.add(waiter, cost);
    if (this.#turn === 0) this.#request(this);
  }

  /** Reserves for a waiter at another pool: a recall would otherwise give it back during the wait. */
  keep(waiter: Waiter, cost: number): void {
    if (cost > 0) this.#waiters.add(waiter, cost);
  }

  /** Begins a turn and stops using what is not kept. undefined = nothing to report. */
  begin(turn: number): PoolTurn | undefined {
    if (this.#turn !== 0) return undefined;
    const nowMs = this.#clock.monotonicMs();
    const { window } = this;
    const returns =
      this.#returns || this.isEnded || nowMs < this.#recalledUntilMs || window?.isExact === true;
    const sliceMs = this.isWindow
      ? Math.min(this.#sliceMs, (window?.durationMs ?? 0) * SLICE_PART)
      : this.#sliceMs;
    const slice = returns ? 0 : Math.floor((this.#rate.at(nowMs) * sliceMs) / 1000);
    const isSurplus = this.#isReleased || this.#hasPlaces;
    const kept = returns ? 0 : isSurplus ? Math.min(this.available, slice) : this.available;
    this.#isReleased = false;
    this.#returns = false;
    this.#turn = turn;
    this.#settled = false;
    this.#granted = (this.#spent ?? 0) + kept;
    this.#reportedSpent = this.#spent ?? 0;
    this.#sentAt = instant(this.#clock);
    const report = { pool: this.id, turn, spent: this.#spent, kept, needs: this.#waiters.needs(), slice };
    if (!window) return report;
    const { limit, durationMs, calendar, thresholds, isBrought } = window;
    return {
      ...report,
      window: { limit, durationMs, calendar, thresholds, isBrought, number: this.#number },
    };
  }

  /** Applies a reply, unless its turn no longer counts. */
  takeReply(reply: PoolReply): void {
    if (reply.turn !== this.#turn) return;
    this.#turn = 0;
    const { status, total } = reply;
    if (status === 'FULL') return void this.failAll(tooMany());
    if (status === 'STALE' || status === 'OLD' || status === 'NOREG') {
      if (status === 'STALE') this.#settled = true;
      this.#clock.after(RETRY_MS, () => this.#waiters.wakeAll());
      return;
    }
    if (reply.window) this.#enter(reply.window);
    const since = this.#spent === undefined ? 0 : this.#spent - this.#reportedSpent;
    this.#spent ??= reply.spent;
    this.#granted = reply.granted;
    this.#remaining = total + reply.reserve - since;
    this.#settled = this.#granted === this.#spent && since === 0;
    const nowMs = this.#clock.monotonicMs();
    this.#knownUntilMs = nowMs + KNOWN_MS;
    this.#refusedUntilMs = 0;
    this.#slice = 0;
    this.#refillAtMs = reply.refillMs < 0 ? Number.POSITIVE_INFINITY : nowMs + reply.refillMs;
    if (status !== 'OK' && status !== 'WAIT') this.#refuse(reply, nowMs);
    this.#waiters.wakeServed(() => this.available);
    if (status === 'WAIT')
      return void this.#clock.after(RETRY_MS, () => {
        if (this.#turn === 0 && this.#waiters.size > 0) this.#request(this);
      });
    this.#waiters.wakeAll();
    // Without what requests need that still wait for another pool: taking it is no reason to ask for more.
    this.#slice = Math.max(0, this.available - this.#waiters.cost);
    const isDue = this.#returns || (nowMs < this.#recalledUntilMs && this.available > this.#waiters.cost);
    if (isDue && !this.#settled) this.giveBack();
  }

  #refuse({ status, leastNeed }: PoolReply, nowMs: number): void {
    const isFinal = this.isWindow && status === 'NONE';
    const longestMs = isFinal ? REFUSED_WINDOW_MS : this.#hasPlaces ? REFUSED_PLACE_MS : KNOWN_MS;
    this.#refusedBelow = leastNeed;
    this.#refusedUntilMs = Math.min(nowMs + longestMs, this.#refillAtMs);
  }

  /** Enters the window of a reply, and notes how long its grant is valid. */
  #enter({ number, leftMs }: { number: number; leftMs: number }): void {
    if (number !== this.#number) {
      if (this.#spent !== undefined) this.#reportedSpent = 0;
      this.#spent = this.#spent === undefined ? undefined : 0;
      this.#number = number;
    }
    const { monotonicMs, wallMs } = this.#sentAt;
    this.#endsMs = monotonicMs + leftMs;
    const { durationMs = 0, calendar } = this.window ?? {};
    this.#resetMs = calendar ? number * 1000 : (number + 1) * durationMs;
    // Counts from the sending, so that the grant ends before the window, however late the reply is.
    const goodMs = Math.min(leftMs, GRANTED_MS) / DRIFT;
    this.#until = { monotonicMs: monotonicMs + goodMs, wallMs: wallMs + goodMs };
  }

  /** Handles a failed call: the next turn gives back what this one may have granted. */
  failTurn(turn: number, error: unknown): void {
    if (turn !== this.#turn) return;
    this.#turn = 0;
    this.failAll(error);
  }

  failAll(error: unknown): void {
    this.#waiters.failAll(error);
  }

  /** Ends the use of the name under which this pool was granted anything. */
  end(error: unknown): void {
    this.isEnded = true;
    this.void();
    this.failAll(error);
  }

  /** Returns true if the grant is no longer valid. Credits are valid until they are spent. */
  #isOver({ monotonicMs, wallMs }: Instant): boolean {
    if (!this.isWindow) return false;
    return monotonicMs >= this.#until.monotonicMs || wallMs >= this.#until.wallMs;
  }

  /** Voids everything from before a change of a key with this pool, and gives everything back. */
  applyChange(): void {
    const isOut = this.#turn !== 0 || !this.#settled;
    this.void();
    this.#waiters.wakeAll();
    if (isOut) this.giveBack();
  }

  /** Gives everything back, because others need it. */
  recall(): void {
    this.#recalledUntilMs = this.#clock.monotonicMs() + RECALLED_MS;
    if (!this.#settled) this.giveBack();
  }

  giveBack(): void {
    this.#returns = true;
    if (this.#turn === 0) this.#request(this);
  }

  /** Forgets the unspent grant, the turn in flight and the refusal. */
  void(): void {
    if (this.#turn !== 0) this.#settled = false;
    this.#turn = 0;
    this.#granted = this.#spent ?? 0;
    this.#remaining = undefined;
    this.#refusedUntilMs = 0;
    this.#slice = 0;
  }
}

/** A request that needs more than is held locally. */
export interface Waiter {
  /** True once the request no longer waits. */
  readonly over: boolean;
  /** Called when there is news. Decides everything anew, and asks again if the request still has to wait. */
  again(): void;
  fail(error: unknown): void;
}

/**
 * Resolves with the outcome of `attempt`, or rejects with its error, or at the deadline. An attempt without an
 * outcome asks pools with the waiter, which then attempts anew.
 */
export function untilServed<T extends object>(
  deadlines: Deadlines<(error: unknown) => void>,
  attempt: (waiter: Waiter) => T | Promise<T> | undefined,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const deadline = deadlines.begin(reject);
    let isOver = false;
    const end = () => {
      isOver = true;
      deadlines.end(deadline);
    };
    const waiter: Waiter = {
      get over() {
        return isOver || deadline.hasPassed;
      },
      again() {
        if (waiter.over) return;
        try {
          const outcome = attempt(waiter);
          if (outcome === undefined) return;
          end();
          resolve(outcome);
        } catch (error) {
          waiter.fail(error);
        }
      },
      fail(error) {
        if (waiter.over) return;
        end();
        reject(error);
      },
    };
    waiter.again();
  });
}

/** Maximum number of runs of equal needs in one turn. Further needs wait for the next turn. */
const NEEDS_MAX = 50;

/** The requests that wait for one pool, in their order, each with its need. */
export class Waiters {
  readonly #waiters = new Map<Waiter, number>();

  get size(): number {
    this.#forgetOver();
    return this.#waiters.size;
  }

  /** Sum of their needs. */
  get cost(): number {
    this.#forgetOver();
    return [...this.#waiters.values()].reduce((sum, cost) => sum + cost, 0);
  }

  add(waiter: Waiter, cost: number): void {
    this.#waiters.set(waiter, cost);
  }

  /** Returns the needs in the form of a turn. Forgets requests that no longer wait. */
  needs(): PoolTurn['needs'] {
    const needs: { cost: number; times: number }[] = [];
    for (const [waiter, cost] of this.#waiters) {
      const last = needs.at(-1);
      if (waiter.over) this.#waiters.delete(waiter);
      else if (last?.cost === cost) last.times++;
      else if (cost > 0 && needs.length < NEEDS_MAX) needs.push({ cost, times: 1 });
    }
    return needs;
  }

  /** Wakes each request that needs no more than is available at its turn. The others go on waiting. */
  wakeServed(available: () => number): void {
    // Iterates over a copy: requests that ask again meanwhile wait for the next turn.
    for (const [waiter, cost] of [...this.#waiters]) {
      if (cost > available()) continue;
      this.#waiters.delete(waiter);
      waiter.again();
    }
  }

  wakeAll(): void {
    for (const waiter of this.#take()) waiter.again();
  }

  failAll(error: unknown): void {
    for (const waiter of this.#take()) waiter.fail(error);
  }

  #forgetOver(): void {
    for (const waiter of this.#waiters.keys()) if (waiter.over) this.#waiters.delete(waiter);
  }

  #take(): Waiter[] {
    const waiters = [...this.#waiters.keys()];
    this.#waiters.clear();
    return waiters;
  }
}

/** Time constant with which the rate follows a change, in milliseconds. */
const RATE_MS = 1000;

/**
 * Credits spent per second, from which a pool derives its slice. The latest spending does not count yet, so a
 * key with less than one request in two seconds never gets a slice.
 */
class SpendingRate {
  /** The rate at the latest spending, without it. */
  #rate = 0;
  #latestCost = 0;
  #latestAtMs = 0;

  spent(cost: number, nowMs: number): void {
    this.#rate = (this.#rate + (this.#latestCost * 1000) / RATE_MS) * this.#decay(nowMs);
    this.#latestCost = cost;
    this.#latestAtMs = nowMs;
  }

  at(nowMs: number): number {
    return this.#rate * this.#decay(nowMs);
  }

  /** Returns the part of the rate that is left since the latest spending. */
  #decay(nowMs: number): number {
    return Math.exp((this.#latestAtMs - nowMs) / RATE_MS);
  }
}
