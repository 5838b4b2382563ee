import { ApiError } from '#shared/contract/errors.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { type Instant, instant } from '../following/lease.ts';
import type { PoolReply, PoolTurn } from '../redis-port.ts';
import { SpendingRate } from './spending-rate.ts';
import { type Waiter, Waiters } from './waiters.ts';

/** A rate limit: so much in each window of some length. */
export interface Window {
  readonly limit: number;
  readonly durationMs: number;
  /** True if there are no slices: Redis is asked at each request. */
  readonly isExact: boolean;
  /** True if a request brings it, of which there may be only so many for a key. */
  readonly isBrought?: boolean | undefined;
}

const tooMany = () =>
  new ApiError(
    'RATE_LIMITED',
    'ratelimits: requests brought so many different limits for this key that no more can be counted at present',
  );

/** Time without a request after which everything is given back, milliseconds. */
export const IDLE_MS = 2000;
/** Time for which a pool that was recalled takes no more than its requests need, milliseconds. */
const RECALLED_MS = 5000;
/** Longest time for which a refusal is remembered, and for which what remains is told without asking, milliseconds. */
const KNOWN_MS = 1000;
/** The same for a refusal by a rate limit of which nothing can come back, so that Redis says how long that is. */
const REFUSED_WINDOW_MS = 60_000;
/** Rest before Redis is asked once more for what others are to give back, milliseconds. */
const RETRY_MS = 5;
/** Longest time for which what was granted in a window is used without asking again, milliseconds. */
const GRANTED_MS = 4000;
/** Clocks of two machines differ by less than this in speed. */
const DRIFT = 1.03;
/** A slice lasts for at most this part of a window. */
const SLICE_PART = 1 / 8;

/**
 * Credits of one pool in the hands of one follower, under one of its names: `granted` to it and `spent` by it since the name
 * began. Redis counts all that was granted as gone. Whatever fails, both numbers are said whole again, so that nothing is
 * counted twice and nothing that was spent can be granted to others. A rate limit is the same, but begins anew with each of
 * its windows; what was granted in one is nothing in the next.
 */
export class Pool {
  readonly id: string;
  /** undefined = credits. Changes where the limit does. */
  window: Window | undefined;
  readonly #clock: Clock;
  readonly #sliceMs: number;
  readonly #request: (pool: Pool) => void;
  readonly #waiters = new Waiters();
  /** The window that the numbers are of; undefined = none. */
  #number: number | undefined;
  /**
   * The end of what was granted, on both clocks as a lease has it: the monotonic one stands while a machine is suspended, which
   * the window does not.
   */
  #until: Instant = { monotonicMs: Number.POSITIVE_INFINITY, wallMs: Number.POSITIVE_INFINITY };
  /** The end of the window itself, on the monotonic clock. */
  #endsMs = Number.POSITIVE_INFINITY;
  #resetMs = 0;
  #sentAt: Instant = { monotonicMs: 0, wallMs: 0 };
  #granted = 0;
  /** undefined = as Redis knows it: nothing was spent here yet. */
  #spent: number | undefined;
  #remaining: number | undefined;
  /** The turn whose reply counts; 0 = none. */
  #turn = 0;
  #reportedSpent = 0;
  /** Until when `#remaining` is told without asking. */
  #knownUntilMs = 0;
  /** True while Redis is known to count nothing as being here. */
  #settled = true;
  /** True if all is to be given back at the next turn. */
  #returns = false;
  #slice = 0;
  #refusedBelow = 0;
  #refusedUntilMs = 0;
  /** When there is more without anybody giving it, as far as is known. */
  #refillAtMs = Number.POSITIVE_INFINITY;
  #recalledUntilMs = 0;
  readonly #rate = new SpendingRate();
  #usedAtMs: number;

  /** @param request has a turn of this pool taken soon */
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

  /** Number that can be spent without asking. */
  get available(): number {
    if (this.#spent === undefined || this.#isOver(this.#clock.monotonicMs())) return 0;
    return this.#granted - this.#spent;
  }

  /** True while nothing is here or on its way that Redis should know of, so that it can be forgotten. */
  get isSettled(): boolean {
    if (this.#turn !== 0 || this.#waiters.size > 0) return false;
    return this.window ? this.available === 0 : this.#settled;
  }

  get isIdle(): boolean {
    return this.#waiters.size === 0 && this.#clock.monotonicMs() - this.#usedAtMs >= IDLE_MS;
  }

  /** True if something is here for so long that others, and what remains, should be told of anew. */
  get isStale(): boolean {
    const nowMs = this.#clock.monotonicMs();
    return this.available > 0 && nowMs >= this.#knownUntilMs - KNOWN_MS + Math.max(this.#sliceMs, KNOWN_MS);
  }

  /** Time until a refused request may be made again; undefined = nobody knows. */
  get retryMs(): number | undefined {
    if (this.#refillAtMs === Number.POSITIVE_INFINITY) return undefined;
    return Math.max(0, this.#refillAtMs - this.#clock.monotonicMs());
  }

  /** When the present window ends, Unix milliseconds of the clock of Redis. */
  resetMs(nowMs: number): number {
    const { durationMs = 0 } = this.window ?? {};
    if (nowMs < this.#endsMs || durationMs === 0) return this.#resetMs;
    return this.#resetMs + durationMs * Math.floor(1 + (nowMs - this.#endsMs) / durationMs);
  }

  /** Number of those that are left, as far as is known here. */
  get remaining(): number {
    return Math.max(0, this.#remaining ?? 0);
  }

  /** Looks what a request of this cost would be told; undefined = Redis must be asked (`ask`). Spends nothing. */
  look(cost: number, nowMs: number): 'enough' | 'too little' | undefined {
    this.#usedAtMs = nowMs;
    if (this.#remaining === undefined) return undefined;
    if (this.#spent !== undefined && this.#granted - this.#spent >= cost && !this.#isOver(nowMs))
      // Who takes nothing would never ask, and be told for ever what remained once.
      return cost === 0 && nowMs >= this.#knownUntilMs ? undefined : 'enough';
    return cost > 0 && nowMs < this.#refusedUntilMs && cost >= this.#refusedBelow ? 'too little' : undefined;
  }

  /** Spends what `look` said to be enough, in the same block. */
  take(cost: number, nowMs: number): void {
    if (cost === 0 || this.#spent === undefined || this.#remaining === undefined) return;
    this.#rate.spent(cost, nowMs);
    this.#spent += cost;
    this.#remaining -= cost;
    this.#settled = false;
    if (this.#turn === 0 && 2 * (this.#granted - this.#spent) < this.#slice) this.#request(this);
  }

  /** Waits for what is not here; once, however often it is said. */
  ask(waiter: Waiter, cost: number): void {
    this.#waiters.add(waiter, cost);
    if (this.#turn === 0) this.#request(this);
  }

  /** Keeps what is here for one who waits for another pool: recalled, either would give back what came while the other is asked. */
  keep(waiter: Waiter, cost: number): void {
    if (cost > 0) this.#waiters.add(waiter, cost);
  }

  /** Begins a turn: what is not kept is gone from here before anybody is told. undefined = there is nothing to say. */
  begin(turn: number): PoolTurn | undefined {
    if (this.#turn !== 0) return undefined;
    const nowMs = this.#clock.monotonicMs();
    const { window } = this;
    const returns = this.#returns || nowMs < this.#recalledUntilMs || window?.isExact === true;
    const kept = returns ? 0 : this.available;
    const sliceMs = window ? Math.min(this.#sliceMs, window.durationMs * SLICE_PART) : this.#sliceMs;
    const slice = returns ? 0 : Math.floor((this.#rate.at(nowMs) * sliceMs) / 1000);
    this.#returns = false;
    this.#turn = turn;
    this.#settled = false;
    this.#granted = (this.#spent ?? 0) + kept;
    this.#reportedSpent = this.#spent ?? 0;
    this.#sentAt = instant(this.#clock);
    const report = { pool: this.id, turn, spent: this.#spent, kept, needs: this.#waiters.needs(), slice };
    if (!window) return report;
    const { limit, durationMs, isBrought } = window;
    return { ...report, window: { limit, durationMs, isBrought, number: this.#number } };
  }

  /** Takes a reply, unless it is of a turn that counts no more. */
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
    if (status === 'WAIT') return void this.#clock.after(RETRY_MS, () => this.#goOn());
    this.#waiters.wakeAll();
    this.#slice = this.available;
    const isDue = this.#returns || (nowMs < this.#recalledUntilMs && this.available > this.#waiters.cost);
    if (isDue && !this.#settled) this.giveBack();
  }

  #refuse({ status, leastNeed }: PoolReply, nowMs: number): void {
    const longestMs = this.window && status === 'NONE' ? REFUSED_WINDOW_MS : KNOWN_MS;
    this.#refusedBelow = leastNeed;
    this.#refusedUntilMs = Math.min(nowMs + longestMs, this.#refillAtMs);
  }

  /** Begins anew where the window is another, and notes how long what is granted now is good for. */
  #enter({ number, leftMs }: { number: number; leftMs: number }): void {
    if (number !== this.#number) {
      if (this.#spent !== undefined) this.#reportedSpent = 0;
      this.#spent = this.#spent === undefined ? undefined : 0;
      this.#number = number;
    }
    const { monotonicMs, wallMs } = this.#sentAt;
    this.#endsMs = monotonicMs + leftMs;
    this.#resetMs = (number + 1) * (this.window?.durationMs ?? 0);
    // From the sending, so that it ends before the window does, whatever time the reply took.
    const goodMs = Math.min(leftMs, GRANTED_MS) / DRIFT;
    this.#until = { monotonicMs: monotonicMs + goodMs, wallMs: wallMs + goodMs };
  }

  /** A turn's call failed: what it granted is given back by the next. */
  failTurn(turn: number, error: unknown): void {
    if (turn !== this.#turn) return;
    this.#turn = 0;
    this.failAll(error);
  }

  failAll(error: unknown): void {
    this.#waiters.failAll(error);
  }

  #goOn(): void {
    if (this.#turn === 0 && this.#waiters.size > 0) this.#request(this);
  }

  /** True if what was granted is good no more. Credits are until they are spent. */
  #isOver(nowMs: number): boolean {
    const { window } = this;
    return (
      window !== undefined && (nowMs >= this.#until.monotonicMs || this.#clock.wallMs() >= this.#until.wallMs)
    );
  }

  /** A change of a key with this pool was applied: nothing from before it counts, and everything is given back. */
  applyChange(): void {
    const isOut = this.#turn !== 0 || !this.#settled;
    this.void();
    this.#waiters.wakeAll();
    if (isOut) this.giveBack();
  }

  /** Others need what is here. */
  recall(): void {
    this.#recalledUntilMs = this.#clock.monotonicMs() + RECALLED_MS;
    if (!this.#settled) this.giveBack();
  }

  giveBack(): void {
    this.#returns = true;
    if (this.#turn === 0) this.#request(this);
  }

  /** Forgets all that was granted and is not spent, the turn in flight, and what was refused. */
  void(): void {
    if (this.#turn !== 0) this.#settled = false;
    this.#turn = 0;
    this.#granted = this.#spent ?? 0;
    this.#remaining = undefined;
    this.#refusedUntilMs = 0;
    this.#slice = 0;
  }
}
