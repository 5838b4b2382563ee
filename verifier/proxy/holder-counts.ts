/**
 * Number of counts. It exceeds the number of possible connections, so that two names rarely share a count.
 */
const PLACES = 65_536;

/**
 * Counts for many holders, in memory that neither grows nor creates garbage. Two names with the same hash
 * share a count.
 */
export class HolderCounts {
  readonly #counts = new Uint16Array(PLACES);

  /** Returns the place of a holder, for the other methods. */
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
