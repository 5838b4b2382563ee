/** At most `slots` holders at once; at most `queued` wait for a slot, in order. */
export class Semaphore {
  #free: number;
  readonly #queued: number;
  readonly #waiting: ((held: true) => void)[] = [];

  constructor(slots: number, queued: number) {
    this.#free = slots;
    this.#queued = queued;
  }

  /** True once a slot is held; false when the queue is full. Every true needs one `release`. */
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
