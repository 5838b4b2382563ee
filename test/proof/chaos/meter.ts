/** A VALID that a caller got. Times are Unix milliseconds, of the clock that Redis has too. */
export interface Use {
  readonly sentMs: number;
  readonly receivedMs: number;
  readonly cost: number;
}

/** Time in which Redis may have forgotten what it granted, because other nodes took a primary's place. */
export interface Failover {
  readonly fromMs: number;
  readonly untilMs: number;
  /** Number of those nodes, one after the other. */
  readonly count: number;
}

/**
 * Uses of one key with a rate limit: what callers were told VALID for, held against what any window, and any time as long as
 * one, allows. A use was accepted at some moment between its question and its answer, so it counts where both of them lie:
 * what crosses the end of a window may belong to either and is held against both together. A failover may forget what was
 * granted in a window, so that it is granted once more; nothing else may.
 */
export class Meter {
  readonly keyId: string;
  readonly key: string;
  readonly limit: number;
  readonly durationMs: number;
  limited = 0;
  readonly #uses: Use[] = [];

  constructor(keyId: string, key: string, limit: number, durationMs: number) {
    this.keyId = keyId;
    this.key = key;
    this.limit = limit;
    this.durationMs = durationMs;
  }

  accepted(use: Use): void {
    this.#uses.push(use);
  }

  get total(): number {
    return this.#uses.length;
  }

  exceeded(failovers: readonly Failover[]): string[] {
    const once = (fromMs: number, untilMs: number) =>
      failovers.reduce(
        (all, each) => (each.fromMs < untilMs && each.untilMs >= fromMs ? all + each.count : all),
        0,
      );
    return [...this.#windows(1, once), ...this.#windows(2, once), ...this.#sliding(once)];
  }

  /** Runs of so many windows, each of which may have the limit. */
  #windows(count: number, forgotten: (fromMs: number, untilMs: number) => number): string[] {
    const { durationMs, limit, keyId } = this;
    const sums = new Map<number, number>();
    for (const { sentMs, receivedMs, cost } of this.#uses) {
      const last = Math.floor(receivedMs / durationMs);
      for (let first = last - count + 1; first <= Math.floor(sentMs / durationMs); first++)
        sums.set(first, (sums.get(first) ?? 0) + cost);
    }
    return [...sums].flatMap(([first, sum]) => {
      const fromMs = first * durationMs;
      const most = limit * (count + forgotten(fromMs, fromMs + count * durationMs));
      return sum > most ? [`${keyId}: ${sum} of ${most} in ${count} × ${durationMs} ms from ${fromMs}`] : [];
    });
  }

  /** Times as long as a window: the window before counts for the share of it that they hold. */
  #sliding(forgotten: (fromMs: number, untilMs: number) => number): string[] {
    const { durationMs, limit, keyId } = this;
    const uses = this.#uses.toSorted((a, b) => a.receivedMs - b.receivedMs);
    return uses.flatMap(({ receivedMs }, i) => {
      const fromMs = receivedMs - durationMs;
      let sum = 0;
      for (let at = i; (uses[at]?.receivedMs ?? fromMs) > fromMs; at--) {
        const { sentMs, cost } = uses[at] ?? { sentMs: fromMs, cost: 0 };
        if (sentMs > fromMs) sum += cost;
      }
      const share = (receivedMs % durationMs) / durationMs;
      const most = Math.ceil(limit * (1 + share + forgotten(fromMs - durationMs, receivedMs)));
      return sum > most ? [`${keyId}: ${sum} of ${most} in the ${durationMs} ms until ${receivedMs}`] : [];
    });
  }
}
