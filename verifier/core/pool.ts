import type { Clock } from '#shared/clock.ts';
import type { PoolReply, PoolTurn } from './redis-port.ts';

/** Somebody whose credits are not here. */
export interface Waiter {
  readonly cost: number;
  /** True once nobody waits any more. */
  readonly over: boolean;
  /** Called when there is news: judges all anew and, where it still has to wait, asks again. */
  again(): void;
  fail(error: unknown): void;
}

/** Answer of a pool to a request: what remains after it, or that too little does. */
export interface Spending {
  readonly spent: boolean;
  /** Credits left, as far as is known here. */
  readonly remaining: number;
  /** Of a refusal: time until credits come back by themselves, milliseconds; undefined = they do not. */
  readonly refillMs?: number | undefined;
}

/** Time without a request after which everything is given back, milliseconds. */
export const IDLE_MS = 2000;
/** Time for which a pool that was recalled takes no more than its requests need, milliseconds. */
const RECALLED_MS = 5000;
/** Longest time for which a refusal is remembered, milliseconds. */
const REFUSED_MS = 1000;
/** Rest before Redis is asked once more for what others are to give back, milliseconds. */
const RETRY_MS = 5;
/** Time in which a rate follows a change, milliseconds. */
const RATE_MS = 1000;

/**
 * Credits of one pool in the hands of one follower, under one of its names: `granted` to it and `spent` by it since the name
 * began. Redis counts all that was granted as gone. Whatever fails, both numbers are said whole again, so that nothing is
 * counted twice and nothing that was spent can be granted to others.
 */
export class Pool {
  readonly id: string;
  readonly #clock: Clock;
  readonly #sliceMs: number;
  readonly #request: (pool: Pool) => void;
  readonly #waiters: Waiter[] = [];
  #granted = 0;
  /** undefined = as Redis knows it: nothing was spent here yet. */
  #spent: number | undefined;
  #remaining: number | undefined;
  /** The turn whose reply counts; 0 = none. */
  #turn = 0;
  #said = { spent: 0, kept: 0, least: 0 };
  /** True while Redis is known to count nothing as being here. */
  #settled = true;
  /** True if all is to be given back at the next turn. */
  #returns = false;
  #slice = 0;
  #refusedBelow = 0;
  #refusedUntilMs = 0;
  /** When credits come back by themselves. */
  #refillAtMs = Number.POSITIVE_INFINITY;
  #recalledUntilMs = 0;
  /** Credits spent a second up to the latest spending, without it; as of then. */
  #rate = 0;
  #latest = { cost: 0, atMs: 0 };
  #usedAtMs: number;

  /** @param request has a turn of this pool taken soon */
  constructor(id: string, clock: Clock, sliceMs: number, request: (pool: Pool) => void) {
    this.id = id;
    this.#clock = clock;
    this.#sliceMs = sliceMs;
    this.#request = request;
    this.#usedAtMs = clock.monotonicMs();
  }

  /** Credits that can be spent without asking. */
  get available(): number {
    return this.#spent === undefined ? 0 : this.#granted - this.#spent;
  }

  /** True while nothing is here or on its way, so that it can be forgotten. */
  get isSettled(): boolean {
    return this.#settled && this.#turn === 0 && this.#waiters.length === 0;
  }

  get isIdle(): boolean {
    return this.#waiters.length === 0 && this.#clock.monotonicMs() - this.#usedAtMs >= IDLE_MS;
  }

  /** Spends, where that needs nobody else; undefined = Redis must be asked (`ask`). */
  spend(cost: number): Spending | undefined {
    const nowMs = this.#clock.monotonicMs();
    this.#usedAtMs = nowMs;
    if (this.#remaining === undefined) return undefined;
    if (cost > 0 && nowMs < this.#refusedUntilMs && cost >= this.#refusedBelow) {
      const refillMs = this.#refillAtMs === Number.POSITIVE_INFINITY ? undefined : this.#refillAtMs - nowMs;
      return { spent: false, remaining: Math.max(0, this.#remaining), refillMs };
    }
    if (this.#spent === undefined || this.available < cost) return undefined;
    if (cost > 0) this.#take(this.#spent, this.#remaining, cost, nowMs);
    return { spent: true, remaining: Math.max(0, this.#remaining) };
  }

  #take(spent: number, remaining: number, cost: number, nowMs: number): void {
    const decay = Math.exp((this.#latest.atMs - nowMs) / RATE_MS);
    this.#rate = (this.#rate + (this.#latest.cost * 1000) / RATE_MS) * decay;
    this.#latest = { cost, atMs: nowMs };
    this.#spent = spent + cost;
    this.#remaining = remaining - cost;
    this.#settled = false;
    if (this.#turn === 0 && 2 * this.available < this.#slice) this.#request(this);
  }

  /** Waits for what `spend` did not have. */
  ask(waiter: Waiter): void {
    this.#waiters.push(waiter);
    if (this.#turn === 0) this.#request(this);
  }

  /** Begins a turn: what is not kept is gone from here before anybody is told. undefined = there is nothing to say. */
  begin(turn: number): PoolTurn | undefined {
    const waiting = this.#waiters.filter((waiter) => !waiter.over);
    this.#waiters.splice(0, Infinity, ...waiting);
    const nowMs = this.#clock.monotonicMs();
    if (this.#turn !== 0) return undefined;
    const returns = this.#returns || nowMs < this.#recalledUntilMs;
    const kept = returns ? 0 : this.available;
    const costs = waiting.map(({ cost }) => cost).filter((cost) => cost > 0);
    const need = Math.max(0, costs.reduce((sum, cost) => sum + cost, 0) - kept);
    const least = need === 0 ? 0 : Math.max(1, Math.min(...costs) - kept);
    // Without the latest request itself: a key with less than one request in two seconds never has a slice.
    const rate = this.#rate * Math.exp((this.#latest.atMs - nowMs) / RATE_MS);
    const wanted = returns ? 0 : Math.floor((rate * this.#sliceMs) / 1000);
    this.#returns = false;
    this.#turn = turn;
    this.#settled = false;
    this.#granted = (this.#spent ?? 0) + kept;
    this.#said = { spent: this.#spent ?? 0, kept, least: least + kept };
    return { pool: this.id, turn, spent: this.#spent, kept, need, least, wanted };
  }

  /** Takes a reply, unless it is of a turn that counts no more. */
  replied(reply: PoolReply): void {
    if (reply.turn !== this.#turn) return;
    this.#turn = 0;
    const { status, total } = reply;
    if (status === 'STALE' || status === 'OLD' || status === 'NOREG') {
      if (status === 'STALE') this.#settled = true;
      this.#clock.after(RETRY_MS, () => this.#wakeAll());
      return;
    }
    const { spent: said } = this.#said;
    const since = this.#spent === undefined ? 0 : this.#spent - said;
    this.#spent ??= reply.spent;
    this.#granted = reply.granted;
    this.#remaining = total + reply.spokenFor - since;
    this.#settled = this.#granted === this.#spent && since === 0;
    if (status === 'WAIT') return void this.#clock.after(RETRY_MS, () => this.#goOn());
    const nowMs = this.#clock.monotonicMs();
    this.#refillAtMs = reply.refillMs < 0 ? Number.POSITIVE_INFINITY : nowMs + reply.refillMs;
    if (status === 'OK') {
      this.#refusedUntilMs = 0;
    } else {
      this.#refusedBelow = status === 'NONE' ? total + 1 : this.#said.least;
      this.#refusedUntilMs = Math.min(nowMs + REFUSED_MS, this.#refillAtMs);
    }
    this.#slice = 0;
    this.#wakeAll();
    this.#slice = this.available;
    if (this.available > 0 && nowMs < this.#recalledUntilMs) this.giveBack();
  }

  /** A turn's call failed: what it granted is given back by the next. */
  failed(turn: number, error: unknown): void {
    if (turn !== this.#turn) return;
    this.#turn = 0;
    this.failAll(error);
  }

  failAll(error: unknown): void {
    for (const waiter of this.#waiters.splice(0)) waiter.fail(error);
  }

  #goOn(): void {
    if (this.#turn === 0 && this.#waiters.length > 0) this.#request(this);
  }

  #wakeAll(): void {
    for (const waiter of this.#waiters.splice(0)) waiter.again();
  }

  /** A change of a key with this pool was applied: nothing from before it counts, and everything is given back. */
  changed(): void {
    this.void();
    this.#wakeAll();
    if (!this.#settled) this.giveBack();
  }

  /** Others need what is here. */
  recalled(): void {
    this.#recalledUntilMs = this.#clock.monotonicMs() + RECALLED_MS;
    if (this.available > 0) this.giveBack();
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
