interface Running<T> {
  readonly digest: string;
  readonly result: Promise<T>;
  next: Running<T> | undefined;
}

/** As many as there are look-ups by default, queued ones included. A power of 2. */
const CHAINS = 1024;

/**
 * What is under way by digest, to be shared. Not a Map for the reason that `Bag` is no Set.
 */
export class InFlight<T> {
  readonly #chains: (Running<T> | undefined)[] = new Array(CHAINS).fill(undefined);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(digest: string): Promise<T> | undefined {
    for (let at = this.#chains[chainOf(digest)]; at; at = at.next) if (at.digest === digest) return at.result;
    return undefined;
  }

  /** `get` finds it until it has settled. Only where there is none with this digest. */
  add(digest: string, result: Promise<T>): Promise<T> {
    const chain = chainOf(digest);
    const running: Running<T> = { digest, result, next: this.#chains[chain] };
    this.#chains[chain] = running;
    this.#size++;
    const remove = () => {
      this.#size--;
      let before: Running<T> | undefined;
      for (let at = this.#chains[chain]; at !== running; at = at?.next) before = at;
      if (before) before.next = running.next;
      else this.#chains[chain] = running.next;
    };
    result.then(remove, remove);
    return result;
  }
}

/** Digests are random already. */
const chainOf = (digest: string) => (digest.charCodeAt(0) | (digest.charCodeAt(1) << 8)) % CHAINS;
