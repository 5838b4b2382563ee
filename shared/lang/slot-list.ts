/**
 * Things that come and go with every request, to be gone through now and then. Not a Set, with which what was in it
 * survives scavenges for long (measured: "Garbage" in verifier/request-path.md). Presumably because V8 gives a Set that keeps filling
 * and emptying a new table every few changes, each reachable from the one before.
 */
export class SlotList<T extends object> {
  readonly #items: (T | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#items.length - this.#free.length;
  }

  /** @returns its place, for `remove` */
  add(item: T): number {
    const place = this.#free.pop() ?? this.#items.length;
    this.#items[place] = item;
    return place;
  }

  /** Once only. */
  remove(place: number): void {
    this.#items[place] = undefined;
    this.#free.push(place);
  }

  /** In no order. Meanwhile they may come and go. */
  *[Symbol.iterator](): Generator<T> {
    for (const item of this.#items) if (item !== undefined) yield item;
  }
}
