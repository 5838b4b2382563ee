/** sfc32: small, fast, and the same numbers from the same seed on every machine. */
export class Random {
  #a: number;
  #b = 0x9e3779b9;
  #c = 0x243f6a88;
  #count = 1;

  constructor(seed: number) {
    this.#a = seed | 0;
    this.#b ^= Math.floor(seed / 2 ** 32);
    for (let i = 0; i < 15; i++) this.next();
  }

  /** From 0 to below 1. An arrow, so that it can be handed on as it is. */
  readonly next = (): number => {
    const sum = (((this.#a + this.#b) | 0) + this.#count) | 0;
    this.#count = (this.#count + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) | 0;
    return (sum >>> 0) / 2 ** 32;
  };

  between(from: number, to: number): number {
    return from + (to - from) * this.next();
  }

  /** A whole number from `from` to `to`, both included. */
  whole(from: number, to: number): number {
    return Math.floor(this.between(from, to + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** Draws the time until the next event of a process without memory. */
  exponential(mean: number): number {
    return -mean * Math.log(1 - this.next());
  }

  pick<T>(items: readonly T[]): T {
    const item = items[Math.floor(this.next() * items.length)];
    if (item === undefined) throw new Error('nothing to pick from');
    return item;
  }

  readonly token = (): string => Math.floor(this.next() * 2 ** 32).toString(36) + this.#count.toString(36);
}
