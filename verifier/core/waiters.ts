import type { PoolTurn } from './redis-port.ts';

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
