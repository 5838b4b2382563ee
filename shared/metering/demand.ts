import type { PoolTurn } from './exchange.ts';

/** A request that needs more than is held locally. */
export interface Waiter {
  /** True once the request no longer waits. */
  readonly over: boolean;
  /** Called when there is news. Decides everything anew, and asks again if the request still has to wait. */
  again(): void;
  fail(error: unknown): void;
}

/** Maximum number of runs of equal needs in one turn. Further needs wait for the next turn. */
const NEEDS_MAX = 50;

interface Need {
  readonly cost: number;
  readonly limit: number;
  /** True = it is there, and reserved while its request waits for another pool. */
  readonly isKept: boolean;
}

/**
 * The requests that wait for one pool, in their order. A turn serves those with one limit, and the next turn those with
 * the next higher one.
 */
export class Demand {
  readonly #waiters = new Map<Waiter, Need>();
  /** The limit of the latest turn. */
  #latest = Number.NEGATIVE_INFINITY;
  /** Those whom it serves. */
  #called: Waiter[] = [];

  get size(): number {
    for (const waiter of this.#waiters.keys()) if (waiter.over) this.#waiters.delete(waiter);
    return this.#waiters.size;
  }

  /** True if anybody waits for this pool itself. */
  get isAsked(): boolean {
    for (const [waiter, { isKept }] of this.#waiters) if (!isKept && !waiter.over) return true;
    return false;
  }

  /** Sum of what is reserved for those who wait for another pool. */
  get reserved(): number {
    let sum = 0;
    for (const [waiter, { cost, isKept }] of this.#waiters) if (isKept && !waiter.over) sum += cost;
    return sum;
  }

  /** True if anything is reserved for one who waits for another pool. */
  get isReserved(): boolean {
    for (const [waiter, { isKept }] of this.#waiters) if (isKept && !waiter.over) return true;
    return false;
  }

  /** Sum of their needs. */
  get cost(): number {
    let sum = 0;
    for (const [waiter, { cost }] of this.#waiters) if (!waiter.over) sum += cost;
    return sum;
  }

  add(waiter: Waiter, cost: number, limit: number, isKept = false): void {
    this.#waiters.set(waiter, { cost, limit, isKept });
  }

  /** Begins a turn: returns its limit and its needs; undefined = nobody waits. */
  begin(): { limit: number; needs: PoolTurn['needs'] } | undefined {
    this.#called = [];
    let lowest: number | undefined;
    let next: number | undefined;
    for (const [waiter, { limit }] of this.#waiters) {
      if (waiter.over) this.#waiters.delete(waiter);
      else {
        lowest = Math.min(limit, lowest ?? limit);
        if (limit > this.#latest) next = Math.min(limit, next ?? limit);
      }
    }
    const limit = next ?? lowest;
    if (limit === undefined) return undefined;
    this.#latest = limit;
    const needs: { cost: number; times: number }[] = [];
    for (const [waiter, need] of this.#waiters) {
      if (need.limit !== limit) continue;
      const last = needs.at(-1);
      if (last?.cost === need.cost) last.times++;
      else if (need.cost > 0 && needs.length === NEEDS_MAX) continue;
      else if (need.cost > 0) needs.push({ cost: need.cost, times: 1 });
      this.#called.push(waiter);
    }
    return { limit, needs };
  }

  /** Adds to `woken` those whom the turn serves and whose needs fit, one after the other. The others go on waiting. */
  wakeServed(available: number, woken: Set<Waiter>): void {
    let rest = available;
    for (const waiter of this.#called) {
      const need = this.#waiters.get(waiter);
      if (need === undefined || need.cost > rest) continue;
      rest -= need.cost;
      if (!need.isKept) this.#wake(waiter, woken);
    }
  }

  /** Adds to `woken` all whom the turn serves. */
  wakeCalled(woken: Set<Waiter>): void {
    for (const waiter of this.#called)
      if (this.#waiters.get(waiter)?.isKept === false) this.#wake(waiter, woken);
  }

  #wake(waiter: Waiter, woken: Set<Waiter>): void {
    if (this.#waiters.delete(waiter)) woken.add(waiter);
  }

  wakeAll(): void {
    for (const waiter of this.#take()) waiter.again();
  }

  failAll(error: unknown): void {
    for (const waiter of this.#take()) waiter.fail(error);
  }

  #take(): Waiter[] {
    const waiters = [...this.#waiters.keys()];
    this.#waiters.clear();
    return waiters;
  }
}
