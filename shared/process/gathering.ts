/**
 * Gathers the items of one turn of the event loop, and works on those with the same name together. The work begins after
 * the last of them came, so no result is older than an item that it belongs to.
 */
export class Gathering<Item, Result> {
  readonly #work: (name: string, items: readonly Item[]) => Promise<Result>;
  readonly #open = new Map<string, { readonly items: Item[]; readonly result: Promise<Result> }>();

  /** @param work gets the items of a turn, in their order */
  constructor(work: (name: string, items: readonly Item[]) => Promise<Result>) {
    this.#work = work;
  }

  /** Adds an item; returns its place among those of its turn, from 0, and the result of all of them. */
  add(name: string, item: Item): { readonly place: number; readonly result: Promise<Result> } {
    const open = this.#open.get(name);
    if (open) return { place: open.items.push(item) - 1, result: open.result };
    const items = [item];
    const result = new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      this.#open.delete(name);
      return this.#work(name, items);
    });
    this.#open.set(name, { items, result });
    return { place: 0, result };
  }
}
