/** Longest time for which a refusal, or the remaining amount, is remembered, in milliseconds. */
export const KNOWN_MS = 1000;
/** Longest time to remember a rate limit's refusal while nobody can give back, in milliseconds. */
export const REFUSED_WINDOW_MS = 60_000;
/** Longest time to remember that no place was free, in milliseconds. */
export const REFUSED_PLACE_MS = 100;

interface Refusal {
  /** The least cost that was refused, and the limit under which. */
  readonly least: number;
  readonly limit: number;
  readonly untilMs: number;
}

/** The state of a pool, as far as its latest reply lets a follower tell, until the next one. */
export class Outlook {
  /** The rest under `#limit`; undefined = unknown. */
  #remaining: number | undefined;
  #limit = Number.POSITIVE_INFINITY;
  /** The time until which `#remaining` is used without asking. */
  #knownUntilMs = 0;
  #refusal: Refusal | undefined;
  /** Expected time of the next refill or window; infinity = never, or unknown. */
  #refillAtMs = Number.POSITIVE_INFINITY;
  /** The most that there can be without a change; infinity = unknown. */
  #most = Number.POSITIVE_INFINITY;

  get isKnown(): boolean {
    return this.#remaining !== undefined;
  }

  /** When this was learnt, on the monotonic clock. */
  get sinceMs(): number {
    return this.#knownUntilMs - KNOWN_MS;
  }

  isFresh(nowMs: number): boolean {
    return nowMs < this.#knownUntilMs;
  }

  /** Returns the rest for a question with this limit; undefined = unknown. */
  remaining(limit: number): number | undefined {
    if (this.#remaining === undefined || limit === this.#limit) return this.#remaining;
    return this.#remaining + limit - this.#limit;
  }

  add(amount: number): void {
    if (this.#remaining !== undefined) this.#remaining += amount;
  }

  /** Returns true if this cost was refused under this limit or a higher one. */
  refuses(cost: number, limit: number, nowMs: number): boolean {
    const refusal = this.#refusal;
    return (
      refusal !== undefined && cost >= refusal.least && limit <= refusal.limit && nowMs < refusal.untilMs
    );
  }

  /** Milliseconds until a refused cost may fit; undefined = it never does, or nobody knows. */
  retryMs(cost: number, nowMs: number): number | undefined {
    if (cost > this.#most || this.#refillAtMs === Number.POSITIVE_INFINITY) return undefined;
    return Math.max(0, this.#refillAtMs - nowMs);
  }

  /** Returns true if a cost is more than there ever is. */
  neverFits(cost: number): boolean {
    return cost > this.#most;
  }

  learn(news: {
    readonly remaining: number;
    readonly limit: number;
    readonly most: number;
    /** undefined = unknown. */
    readonly refillMs: number | undefined;
    readonly nowMs: number;
  }): void {
    const { remaining, limit, most, refillMs, nowMs } = news;
    [this.#remaining, this.#limit, this.#most] = [remaining, limit, most];
    this.#knownUntilMs = nowMs + KNOWN_MS;
    this.#refillAtMs = refillMs === undefined ? Number.POSITIVE_INFINITY : nowMs + refillMs;
    // What fits under a higher limit may be refused under a lower one all the same.
    if (this.#refusal && this.#refusal.limit >= limit) this.#refusal = undefined;
  }

  /** Notes a refusal. Call it after `learn`. */
  refuse(least: number, limit: number, kind: 'window' | 'places' | 'other', nowMs: number): void {
    const longestMs = { window: REFUSED_WINDOW_MS, places: REFUSED_PLACE_MS, other: KNOWN_MS }[kind];
    this.#refusal = { least, limit, untilMs: Math.min(nowMs + longestMs, this.#refillAtMs) };
  }

  void(): void {
    this.#remaining = undefined;
    this.#refusal = undefined;
  }
}
