import type { Write } from '../../../shared/protocol/log/change-log-port.ts';
import { Violation } from './checker.ts';

/** A decrement of this much takes all that there is, and all that may come back. */
export const EVERYTHING = 1e9;

interface Account {
  granted: number;
  accepted: number;
  /** Part of `accepted` that work still holds. */
  held: number;
  /** What was true when somebody was told that everything was taken off; undefined = nobody was. */
  emptied?: { granted: number; accepted: number; readonly atMs: number };
}

/** Credits that came into each pool, in whatever history, and those for which somebody was told VALID. */
export class Ledger {
  readonly #pools = new Map<string, Account>();
  /** Decrements of everything of which nobody knows yet that they are complete. */
  readonly #emptying = new Map<Write, { readonly pool: string; readonly granted: number }>();

  /** Pools of which credits were taken off. */
  readonly reduced = new Set<string>();
  /** Pools that a refill brought at most what is granted: what was spent by then may be told later. */
  readonly refilled = new Set<string>();

  of(pool: string): Account {
    const known = this.#pools.get(pool);
    if (known) return known;
    const fresh = { granted: 0, accepted: 0, held: 0 };
    this.#pools.set(pool, fresh);
    return fresh;
  }

  grant(pool: string, credits: number): void {
    this.of(pool).granted += credits;
  }

  /** Everything was taken off, at Redis. */
  empty(pool: string, write: Write): void {
    this.#emptying.set(write, { pool, granted: this.of(pool).granted });
  }

  /** Somebody was told that a change is complete. */
  complete(write: Write, atMs: number): void {
    const emptying = this.#emptying.get(write);
    if (!emptying) return;
    const account = this.of(emptying.pool);
    if ((account.emptied?.granted ?? 0) > emptying.granted) return;
    account.emptied = { granted: emptying.granted, accepted: account.accepted, atMs };
  }

  hold(pool: string, credits: number): void {
    this.of(pool).held += credits;
  }

  /**
   * Takes back what was accepted for work that did not need it, or adds what it needed more.
   * @param begunAtMs when the work was accepted
   */
  settle(pool: string, more: number, begunAtMs: number, who: string): void {
    if (more > 0) {
      this.accept(pool, more, who);
      return;
    }
    const account = this.of(pool);
    account.accepted += more;
    // What comes back from before was taken off, too.
    if (account.emptied && begunAtMs <= account.emptied.atMs) account.emptied.accepted += more;
  }

  /** Throws where more is accepted than was granted, or than was granted since everything was taken off. */
  accept(pool: string, credits: number, who: string): void {
    const account = this.of(pool);
    account.accepted += credits;
    const { granted, accepted, emptied } = account;
    if (accepted > granted)
      throw new Violation('I12', `${who} accepted credit ${accepted} of ${granted} of ${pool}`);
    if (emptied === undefined || accepted - emptied.accepted <= granted - emptied.granted) return;
    const since = `${accepted - emptied.accepted} of ${granted - emptied.granted}`;
    throw new Violation('I24', `${who} accepted credit ${since} of ${pool} since all were taken off`);
  }
}
