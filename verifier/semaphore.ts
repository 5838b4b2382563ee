/** At most `slots` holders at once; at most `queued` wait for a slot, in order. */
export class Semaphore {
  #free: number;
  readonly #queued: number;
  readonly #waiting: (() => void)[] = [];

  constructor(slots: number, queued: number) {
    this.#free = slots;
    this.#queued = queued;
  }

  /** True once a slot is held; false at once when the queue is full. Every true needs one `release`. */
  async acquire(): Promise<boolean> {
    if (this.#free > 0) {
      this.#free--;
      return true;
    }
    if (this.#waiting.length >= this.#queued) return false;
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return true;
  }

  release(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#free++;
  }
}
