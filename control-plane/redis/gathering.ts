/**
 * Gathers what is asked in one turn of the event loop, and handles together what has the same name. The work begins
 * after everything of the turn was asked, so each asker gets a result that is no older than its question.
 */
export class Gathering<Item, Result> {
  readonly #handle: (name: string, items: readonly Item[]) => Promise<Result>;
  readonly #open = new Map<string, { readonly items: Item[]; readonly result: Promise<Result> }>();

  /** @param handle gets the items of a turn, in their order */
  constructor(handle: (name: string, items: readonly Item[]) => Promise<Result>) {
    this.#handle = handle;
  }

  /** Adds an item; returns its place among those of its turn, from 0, and the result of all of them. */
  add(name: string, item: Item): { readonly place: number; readonly result: Promise<Result> } {
    const open = this.#open.get(name);
    if (open) return { place: open.items.push(item) - 1, result: open.result };
    const items = [item];
    const result = new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      this.#open.delete(name);
      return this.#handle(name, items);
    });
    this.#open.set(name, { items, result });
    return { place: 0, result };
  }
}
