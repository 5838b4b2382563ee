import type { Clock } from '#shared/lang/clock.ts';
import { type Deadline, Deadlines } from '#shared/lang/deadlines.ts';

/** A caller that waits for the answer to a question about a running look-up. */
interface Waiter<Q, A> {
  readonly question: Q;
  readonly resolve: (answer: A | Promise<A>) => void;
  readonly reject: (error: unknown) => void;
}

interface RunningLookup<Q, A> {
  readonly digest: string;
  readonly waiting: Deadline<Waiter<Q, A>>[];
}

/** About the default maximum of simultaneous look-ups, including the queued ones. */
const CHAINS = 1024;

/** The look-up that `SingleFlight` shares, and the answer for each caller. */
interface Options<T, Q, A> {
  readonly clock: Clock;
  /** Longest wait of a caller, in milliseconds. The look-up goes on without the caller. */
  readonly waitMs: number;
  read(digest: string): Promise<T>;
  /** Returns the caller's answer, or throws. `waitMs` does not bound the promise that it returns. */
  answer(result: T, question: Q): A | Promise<A>;
  tooSlow(): Error;
}

/**
 * The running look-ups, one per digest however many callers wait. They are not in a Map, for the reason given
 * at `SlotList`. Each caller gets only one promise, because promises are most of the garbage of a look-up.
 */
export class SingleFlight<T, Q, A> {
  readonly #options: Options<T, Q, A>;
  readonly #deadlines: Deadlines<Waiter<Q, A>>;
  readonly #chains: readonly RunningLookup<Q, A>[][] = Array.from({ length: CHAINS }, () => []);
  #size = 0;

  constructor(options: Options<T, Q, A>) {
    this.#options = options;
    this.#deadlines = new Deadlines(options.clock, options.waitMs, ({ reject }) => reject(options.tooSlow()));
  }

  get size(): number {
    return this.#size;
  }

  /**
   * Returns the answer to a question about the result of the look-up for `digest`. Starts the look-up if none
   * is running.
   */
  lookUp(digest: string, question: Q): Promise<A> {
    return new Promise((resolve, reject) => {
      const deadline = this.#deadlines.begin({ question, resolve, reject });
      // Digests are already random.
      const chain = this.#chains[(digest.charCodeAt(0) | (digest.charCodeAt(1) << 8)) % CHAINS] ?? [];
      for (const lookup of chain) {
        if (lookup.digest === digest) return void lookup.waiting.push(deadline);
      }
      this.#begin(chain, { digest, waiting: [deadline] });
    });
  }

  #begin(chain: RunningLookup<Q, A>[], lookup: RunningLookup<Q, A>): void {
    chain.push(lookup);
    this.#size++;
    const end = (settle: (waiter: Waiter<Q, A>) => void) => {
      chain.splice(chain.indexOf(lookup), 1);
      this.#size--;
      for (const deadline of lookup.waiting) {
        this.#deadlines.end(deadline);
        // A caller that was already rejected as too slow needs no answer.
        if (!deadline.hasPassed) settle(deadline.item);
      }
    };
    this.#options.read(lookup.digest).then(
      (result) =>
        end(({ question, resolve, reject }) => {
          try {
            resolve(this.#options.answer(result, question));
          } catch (error) {
            reject(error);
          }
        }),
      (error) => end(({ reject }) => reject(error)),
    );
  }
}
