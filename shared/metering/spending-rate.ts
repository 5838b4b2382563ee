/** Time constant with which the rate follows a change, in milliseconds. */
const RATE_MS = 1000;

/**
 * Credits spent per second, from which a pool derives its slice. The latest spending does not count yet, so a
 * key with less than one request in two seconds never gets a slice.
 */
export class SpendingRate {
  /** The rate at the latest spending, without it. */
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

  /** Returns the part of the rate that is left since the latest spending. */
  #decay(nowMs: number): number {
    return Math.exp((this.#latestAtMs - nowMs) / RATE_MS);
  }
}
