import type { Clock } from '#shared/process/clock.ts';
import { type Deadline, Deadlines } from '#shared/process/deadlines.ts';
import type { Verdict } from './verdict.ts';

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
  /** @param question that of the first caller */
  read(digest: string, question: Q): Promise<T>;
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
      this.#begin(chain, { digest, waiting: [deadline] }, question);
    });
  }

  #begin(chain: RunningLookup<Q, A>[], lookup: RunningLookup<Q, A>, first: Q): void {
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
    this.#options.read(lookup.digest, first).then(
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

/** A semaphore with `slots` slots. At most `queued` callers wait for a slot, in order. */
export class Semaphore {
  #free: number;
  readonly #queued: number;
  readonly #waiting: ((held: true) => void)[] = [];

  constructor(slots: number, queued: number) {
    this.#free = slots;
    this.#queued = queued;
  }

  /**
   * Returns or resolves with true once the caller has a slot; returns false if the queue is full. The caller
   * must call `release` once for each true.
   */
  acquire(): boolean | Promise<true> {
    if (this.#free > 0) {
      this.#free--;
      return true;
    }
    if (this.#waiting.length >= this.#queued) return false;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  release(): void {
    const next = this.#waiting.shift();
    if (next) next(true);
    else this.#free++;
  }
}

const DIGEST_BYTES = 32;

/**
 * A cache of secrets without a key, or without a key that this verifier answers for. Each is stored for a
 * while by its digest (`digestOf`), with its verdict. The digest determines the place, and a later digest
 * overwrites an earlier one. Digests are stored as bytes: a flood of made-up keys writes here at every
 * request, and long-lived objects would make every scavenge longer ("Garbage" in verifier/lane/README.md).
 */
export class NegativeCache {
  readonly #clock: Clock;
  readonly #max: number;
  readonly #ttlMs: number;
  readonly #digests: Uint8Array;
  /** Time of the question to Redis for each place, in monotonic milliseconds. */
  readonly #sincesMs: Float64Array;
  readonly #verdicts: (Verdict | undefined)[];

  /** @param ttlMs time for which a secret is remembered, in milliseconds */
  constructor(max: number, ttlMs: number, clock: Clock) {
    this.#clock = clock;
    this.#max = max;
    this.#ttlMs = ttlMs;
    this.#digests = new Uint8Array(max * DIGEST_BYTES);
    this.#sincesMs = new Float64Array(max);
    this.#verdicts = new Array(max).fill(undefined);
  }

  get(digest: string): Verdict | undefined {
    const place = this.#placeOf(digest);
    for (let i = 0, at = place * DIGEST_BYTES; i < DIGEST_BYTES; i++, at++) {
      if (this.#digests[at] !== digest.charCodeAt(i)) return undefined;
    }
    const ageMs = this.#clock.monotonicMs() - (this.#sincesMs[place] ?? 0);
    return ageMs <= this.#ttlMs ? this.#verdicts[place] : undefined;
  }

  /** @param sinceMs time of the question to Redis, or earlier, in monotonic milliseconds */
  set(digest: string, verdict: Verdict, sinceMs: number): void {
    const place = this.#placeOf(digest);
    for (let i = 0, at = place * DIGEST_BYTES; i < DIGEST_BYTES; i++, at++) {
      this.#digests[at] = digest.charCodeAt(i);
    }
    this.#sincesMs[place] = sinceMs;
    this.#verdicts[place] = verdict;
  }

  /**
   * Returns the place of a digest. Digests are already random, and 24 bits are enough for a million places.
   */
  #placeOf(digest: string): number {
    return (digest.charCodeAt(0) | (digest.charCodeAt(1) << 8) | (digest.charCodeAt(2) << 16)) % this.#max;
  }
}
