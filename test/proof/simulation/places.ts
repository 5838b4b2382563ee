import { Violation } from './checker.ts';
import type { Network } from './network.ts';

/** Work of an accepted question that has not ended. */
interface OpenWork {
  readonly apiId: string;
  /** The name under which its verifier accepted it, and the machine. */
  readonly member: string;
  readonly machine: string;
  /** The limit under which it was accepted. */
  readonly limit: number;
  readonly runs: () => boolean;
}

/** Accepted work. */
interface AcceptedWork extends OpenWork {
  /** The primary that knew of it; a new one may not, until its holder tells. */
  readonly primary: unknown;
}

/**
 * The work that is held in each pool of places, counted for whoever accepts more: all of its own, and what other members
 * accepted under their present names. What a verifier brings along when it registers anew may come on top of what
 * others were granted meanwhile. Work from before a failover does not count: its holder tells the new primary of it when it connects,
 * and others may have been granted places before.
 */
export class Places {
  readonly #network: Network;
  /** Of the latest failover, so that a server that leads again is another primary. */
  #era = {};
  readonly #open = new Map<string, Set<AcceptedWork>>();

  constructor(network: Network) {
    this.#network = network;
  }

  get size(): number {
    return [...this.#open.values()].flatMap((works) => [...works]).filter(({ runs }) => runs()).length;
  }

  promoted(): void {
    this.#era = {};
  }

  /**
   * Begins work. Throws where more of a pool is held than the limit.
   * @param inForce the largest limit that may be in force
   * @param isAtPrimary false = its verifier still asks a primary that was replaced
   * @returns a function that ends it
   */
  begin(pool: string, accepted: OpenWork, inForce: number, who: string, isAtPrimary: boolean): () => void {
    const work = { ...accepted, primary: isAtPrimary ? this.#era : undefined };
    const works = this.#open.get(pool) ?? new Set();
    this.#open.set(pool, works.add(work));
    if (!isAtPrimary) return () => works.delete(work);
    const { members } = this.#network.group.primary.state.api(work.apiId);
    const counted = [...works].filter(
      ({ machine, member, runs, primary }) =>
        runs() && primary === this.#era && (machine === work.machine || members.has(member)),
    );
    const under = counted.filter(({ limit }) => limit <= work.limit).length;
    const [count, most] = counted.length > inForce ? [counted.length, inForce] : [under, work.limit];
    if (count > most) throw new Violation('I23', `${who} holds one of ${count} of ${pool}, not ${most}`);
    return () => works.delete(work);
  }
}
