/** More than there can be connections; two names rarely share a place. */
const PLACES = 65_536;

/**
 * Counts what each of many holders has, in memory that neither grows nor makes garbage. Two whose names hash alike count as
 * one.
 */
export class HolderCounts {
  readonly #counts = new Uint16Array(PLACES);

  /** The place of a holder, for the other methods. */
  placeOf(name: string): number {
    let hash = 0x811c9dc5;
    for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
    return (hash ^ (hash >>> 16)) & (PLACES - 1);
  }

  at(place: number): number {
    return this.#counts[place] ?? 0;
  }

  add(place: number, count: 1 | -1): void {
    this.#counts[place] = this.at(place) + count;
  }
}
