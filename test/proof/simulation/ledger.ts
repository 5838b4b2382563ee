import { Violation } from './checker.ts';

/** Credits that came into each pool, in whatever history, and those for which somebody was told VALID. */
export class Ledger {
  readonly #pools = new Map<string, { granted: number; accepted: number }>();

  /** Pools of which credits were taken off. */
  readonly reduced = new Set<string>();

  of(pool: string): { granted: number; accepted: number } {
    const known = this.#pools.get(pool);
    if (known) return known;
    const fresh = { granted: 0, accepted: 0 };
    this.#pools.set(pool, fresh);
    return fresh;
  }

  grant(pool: string, credits: number): void {
    this.of(pool).granted += credits;
  }

  /** Takes back what was accepted for work that did not need it, or adds what it needed more. */
  settle(pool: string, more: number, who: string): void {
    if (more > 0) this.accept(pool, more, who);
    else this.of(pool).accepted += more;
  }

  /** Throws where more is accepted than was granted. */
  accept(pool: string, credits: number, who: string): void {
    const account = this.of(pool);
    account.accepted += credits;
    if (account.accepted <= account.granted) return;
    throw new Violation('I12', `${who} accepted credit ${account.accepted} of ${account.granted} of ${pool}`);
  }
}
