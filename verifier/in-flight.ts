interface Running<T> {
  readonly digest: string;
  readonly result: Promise<T>;
}

/** About as many as there may be look-ups by default, queued ones included. */
const CHAINS = 1024;

/** What is under way by digest, to be shared. Not a Map for the reason that `Bag` is no Set. */
export class InFlight<T> {
  readonly #chains: readonly Running<T>[][] = Array.from({ length: CHAINS }, () => []);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(digest: string): Promise<T> | undefined {
    return this.#chainOf(digest).find((running) => running.digest === digest)?.result;
  }

  /** `get` finds it until it has settled. Only where there is none with this digest. */
  add(digest: string, result: Promise<T>): Promise<T> {
    const chain = this.#chainOf(digest);
    const running = { digest, result };
    chain.push(running);
    this.#size++;
    const remove = () => {
      chain.splice(chain.indexOf(running), 1);
      this.#size--;
    };
    result.then(remove, remove);
    return result;
  }

  /** Digests are random already. */
  #chainOf(digest: string): Running<T>[] {
    return this.#chains[(digest.charCodeAt(0) | (digest.charCodeAt(1) << 8)) % CHAINS] ?? [];
  }
}
