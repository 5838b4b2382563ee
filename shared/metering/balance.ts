import type { Divide } from './exchange.ts';

/**
 * The part of a pool that one follower may spend without asking: numbers alone, without clock and Redis. `granted`,
 * `spent` and `held` are totals since the follower took its name: what was granted to it; what is spent for good; and
 * what may still come back, because the work that holds it has not ended.
 */
export class Balance {
  /** The lowest limit under which all here could have been granted. Only questions with this limit, or a higher one, may spend it. */
  under = Number.POSITIVE_INFINITY;
  /** Counts the changes after which nothing from before may be spent, and the divides. */
  since = 0;
  #changedAt = 0;
  /** Holds from before are of an earlier window. */
  #enteredAt = 0;
  #dividedAt = 0;
  #divide: Divide | undefined;
  /** False = all is as in Redis, and nothing was taken here yet. */
  isKnown = false;
  #granted = 0;
  #spent = 0;
  #held = 0;
  /** Went back to Redis since the turn in flight was sent: the reply does not know of it. */
  #gone = 0;

  /** All uses, for good or not. */
  get uses(): number {
    return this.#spent + this.#held;
  }

  get held(): number {
    return this.#held;
  }

  get available(): number {
    return this.isKnown ? this.#granted - this.#spent - this.#held : 0;
  }

  /** Number that a question with this limit may spend. */
  availableUnder(limit: number): number {
    return this.under <= limit ? this.available : 0;
  }

  spend(cost: number): void {
    this.#spent += cost;
  }

  /** Takes what `settle` may give back. */
  hold(cost: number): void {
    this.#held += cost;
  }

  /**
   * Ends a hold: spends `cost` of what it held, at most all. The rest can be spent again, but goes back to Redis if it
   * is older than the latest change.
   * @param since as it was when the hold began
   * @returns where the rest can be spent again: here, at Redis, or nowhere, because its window is over
   */
  settle(since: number, held: number, cost: number): 'here' | 'Redis' | 'nowhere' {
    if (since < this.#enteredAt) return 'nowhere';
    this.#held -= held;
    this.#spent += cost;
    if (since >= this.#changedAt) return 'here';
    const back = held - cost;
    this.#granted -= back;
    this.#gone += back;
    if (this.#divide && since < this.#dividedAt) {
      const { turn, held: yet, back: before } = this.#divide;
      this.#divide = { turn, held: yet - held, back: before + back };
    }
    return 'Redis';
  }

  /** Returns true if no change came since a hold began. */
  isCurrent(since: number): boolean {
    return since >= this.#changedAt;
  }

  /**
   * Keeps no more than this of what is available. Call it when a turn is sent under `limit`.
   * @param isOld true = nobody else may spend what comes back of earlier work: a change of the limit may lie between
   */
  begin(kept: number, limit: number, isOld = false): void {
    // What was granted under a higher limit may be no part of a lower one.
    if (isOld || (limit < this.under && this.under !== Number.POSITIVE_INFINITY)) this.#change();
    this.#granted = this.uses + kept;
    this.#gone = 0;
  }

  /**
   * Takes over the reply of Redis: all that is granted, the uses where nothing was known here, and the lowest limit under which
   * this could have been granted.
   */
  reply(granted: number, uses: number, under: number): void {
    if (!this.isKnown) this.#spent = uses;
    this.under = under;
    this.isKnown = true;
    this.#granted = granted - this.#gone;
  }

  /** Tells work that holds something now apart from all that begins later. Call it with the reply to this turn. */
  divideAt(turn: number): void {
    this.#divide = { turn, held: this.#held, back: this.#gone };
    this.#dividedAt = ++this.since;
  }

  /** The latest divide, for Redis. */
  get divide(): Divide | undefined {
    return this.#divide;
  }

  /** Begins a window, in which nothing is taken yet, and nothing comes back. */
  enter(): void {
    this.#spent = this.#held = this.#gone = 0;
    this.#enteredAt = ++this.since;
  }

  /** Voids all that is not taken. What is held goes to Redis when it comes back. */
  void(): void {
    this.#change();
    this.#granted = this.uses;
  }

  #change(): void {
    this.#changedAt = ++this.since;
  }

  /** Goes on under a new name, to which only what is held is granted. */
  rename(): void {
    this.void();
    this.#spent = 0;
    this.#granted = this.#held;
    this.isKnown = true;
  }
}
