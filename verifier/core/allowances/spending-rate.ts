/** Time in which a rate follows a change, milliseconds. */
const RATE_MS = 1000;

/**
 * Credits spent a second, by which a pool chooses its slice. The latest spending does not count yet: a key with less than
 * one request in two seconds never has a slice.
 */
export class SpendingRate {
  /** Up to the latest spending, as of then. */
  #rate = 0;
  #latestCost = 0;
  #latestAtMs = 0;

  spent(cost: number, nowMs: number): void {
    this.#rate = (this.#rate + (this.#latestCost * 1000) / RATE_MS) * this.#decay(nowMs);
    this.#latestCost = cost;
    this.#latestAtMs = nowMs;
  }

  at(nowMs: number): number {
    return this.#rate * this.#decay(nowMs);
  }

  /** Share of the rate that is left since the latest spending. */
  #decay(nowMs: number): number {
    return Math.exp((this.#latestAtMs - nowMs) / RATE_MS);
  }
}
