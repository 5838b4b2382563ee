/**
 * A collection of objects that are added and removed with every request, and occasionally iterated. A Set
 * keeps its former members alive over many scavenges (measured: "Garbage" in verifier/doors/lane/README.md). The
 * probable reason is that V8 gives a Set that keeps filling and emptying a new table every few changes, and
 * each table is reachable from the one before.
 */
export class SlotList<T extends object> {
  readonly #items: (T | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#items.length - this.#free.length;
  }

  /** @returns the item's place, for `remove` */
  add(item: T): number {
    const place = this.#free.pop() ?? this.#items.length;
    this.#items[place] = item;
    return place;
  }

  /** Removes the item at `place`, and returns it. Call it only once per item. */
  remove(place: number): T | undefined {
    const item = this.#items[place];
    this.#items[place] = undefined;
    this.#free.push(place);
    return item;
  }

  /** Iterates in no particular order. Items may be added and removed meanwhile. */
  *[Symbol.iterator](): Generator<T> {
    for (const item of this.#items) if (item !== undefined) yield item;
  }
}
