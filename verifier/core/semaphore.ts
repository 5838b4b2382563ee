/** A semaphore with `slots` slots. At most `queued` callers wait for a slot, in order. */
export class Semaphore {
  #free: number;
  readonly #queued: number;
  readonly #waiting: ((held: true) => void)[] = [];

  constructor(slots: number, queued: number) {
    this.#free = slots;
    this.#queued = queued;
  }

  /**
   * Returns or resolves with true once the caller has a slot; returns false if the queue is full. The caller
   * must call `release` once for each true.
   */
  acquire(): boolean | Promise<true> {
    if (this.#free > 0) {
      this.#free--;
      return true;
    }
    if (this.#waiting.length >= this.#queued) return false;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  release(): void {
    const next = this.#waiting.shift();
    if (next) next(true);
    else this.#free++;
  }
}
