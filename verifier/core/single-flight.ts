import type { Clock } from '#shared/lang/clock.ts';
import { type Deadline, Deadlines } from '#shared/lang/deadlines.ts';

/** Somebody who waits for the answer to a question about what is looked up. */
interface Waiter<Q, A> {
  readonly question: Q;
  readonly resolve: (answer: A | Promise<A>) => void;
  readonly reject: (error: unknown) => void;
}

interface RunningLookup<Q, A> {
  readonly digest: string;
  readonly waiting: Deadline<Waiter<Q, A>>[];
}

/** About as many as there may be look-ups by default, queued ones included. */
const CHAINS = 1024;

/** The look-up that `SingleFlight` shares, and its result for each who asks. */
interface Options<T, Q, A> {
  readonly clock: Clock;
  /** Longest wait of one who asks, milliseconds; the look-up goes on. */
  readonly waitMs: number;
  read(digest: string): Promise<T>;
  /** May throw; what it still waits for is waited for without this limit. */
  answer(result: T, question: Q): A | Promise<A>;
  tooSlow(): Error;
}

/**
 * Look-ups under way: one for each digest, however many ask. Not in a Map for the reason that `SlotList` is no Set, and with
 * one promise for each who asks, because most of what a look-up leaves for V8 to clear away is promises.
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

  /** The answer to a question about what the look-up for this digest finds; it is begun where there is none. */
  lookUp(digest: string, question: Q): Promise<A> {
    return new Promise((resolve, reject) => {
      const deadline = this.#deadlines.begin({ question, resolve, reject });
      // Digests are random already.
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
        // Nobody judges a question whose asker was told that it took too long.
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
