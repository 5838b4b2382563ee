import type { PoolTurn } from '../redis-port.ts';

/** Somebody who needs what is not here. */
export interface Waiter {
  /** True once nobody waits any more. */
  readonly over: boolean;
  /** Called when there is news: judges all anew and, where it still has to wait, asks again. */
  again(): void;
  fail(error: unknown): void;
}

/** Runs of equal needs that one turn names; who waits behind them comes next. */
const NEEDS_MAX = 50;

/** Those that wait for one pool, in the order in which they came, with what each needs. */
export class Waiters {
  readonly #waiters = new Map<Waiter, number>();

  get size(): number {
    this.#forgetOver();
    return this.#waiters.size;
  }

  /** Sum of what they need. */
  get cost(): number {
    this.#forgetOver();
    return [...this.#waiters.values()].reduce((sum, cost) => sum + cost, 0);
  }

  add(waiter: Waiter, cost: number): void {
    this.#waiters.set(waiter, cost);
  }

  /** Needs of those that wait, as a turn says them. Forgets the others. */
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

  /** Wakes each that needs no more than there is when its turn comes; the others go on waiting. */
  wakeServed(available: () => number): void {
    // Those that ask again meanwhile wait for the next turn.
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
