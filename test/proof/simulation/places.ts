import { Violation } from './checker.ts';
import type { Network } from './network.ts';

/** Work of an accepted question that has not ended. */
interface OpenWork {
  readonly apiId: string;
  readonly member: string;
  readonly runs: () => boolean;
}

/** The work that is held for each key, counted as Redis does: that of members, and of no former ones. */
export class Places {
  readonly #network: Network;
  readonly #limit: number;
  readonly #open = new Map<string, Set<OpenWork>>();

  constructor(network: Network, limit: number) {
    this.#network = network;
    this.#limit = limit;
  }

  get size(): number {
    return [...this.#open.values()].flatMap((works) => [...works]).filter(({ runs }) => runs()).length;
  }

  /**
   * Begins work. Throws where more of a key is held than its limit.
   * @returns a function that ends it
   */
  begin(keyId: string, work: OpenWork, who: string): () => void {
    const works = this.#open.get(keyId) ?? new Set();
    this.#open.set(keyId, works.add(work));
    const { members } = this.#network.group.primary.state.api(work.apiId);
    const counted = [...works].filter(({ member, runs }) => runs() && members.has(member)).length;
    if (counted > this.#limit)
      throw new Violation('I23', `${who} holds one of ${counted} of ${keyId}, not ${this.#limit}`);
    return () => works.delete(work);
  }
}
