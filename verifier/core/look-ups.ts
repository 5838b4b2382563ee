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
    const end = (finish: (waiter: Waiter<Q, A>) => void) => {
      chain.splice(chain.indexOf(lookup), 1);
      this.#size--;
      for (const deadline of lookup.waiting) {
        this.#deadlines.end(deadline);
        // A caller that was already rejected as too slow needs no answer.
        if (!deadline.hasPassed) finish(deadline.item);
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

/** A look-up that waits for a slot. */
interface Waiting {
  /** @param held false = it was given up for another */
  readonly resolve: (held: boolean) => void;
}

/** Sources that are told apart; further ones count as one. */
const SOURCES_MAX = 4096;

/** The look-ups of one rank that wait, by their sources, which have turns. */
class Lines {
  readonly #lines = new Map<string, Waiting[]>();

  get sources(): number {
    return this.#lines.size;
  }

  lengthOf(source: string): number {
    return this.#lines.get(source)?.length ?? 0;
  }

  push(source: string, waiting: Waiting): void {
    const line = this.#lines.get(source);
    if (line) line.push(waiting);
    else this.#lines.set(source, [waiting]);
  }

  /** Takes out the next look-up. Its source then comes after all others. */
  next(): Waiting | undefined {
    for (const [source, line] of this.#lines) {
      const waiting = line.shift();
      this.#lines.delete(source);
      if (line.length > 0) this.#lines.set(source, line);
      return waiting;
    }
    return undefined;
  }

  /** Takes out the last look-up of the source that has most. */
  last(): Waiting | undefined {
    let longest: [source: string, line: Waiting[]] | undefined;
    for (const each of this.#lines) if (each[1].length > (longest?.[1].length ?? 0)) longest = each;
    if (longest?.[1].length === 1) this.#lines.delete(longest[0]);
    return longest?.[1].pop();
  }
}

/**
 * Bounds the look-ups at once to `slots`, and those that wait to `queued`. Sources have turns, so that one with many waits behind
 * nobody but itself; look-ups of secrets that were good before come first. When the queue is full, the source with most gives
 * up a look-up for one that has fewer.
 */
export class LookupSlots {
  #free: number;
  readonly #queued: number;
  #waiting = 0;
  readonly #goodLines = new Lines();
  readonly #otherLines = new Lines();

  constructor(slots: number, queued: number) {
    this.#free = slots;
    this.#queued = queued;
  }

  /** True while look-ups wait. */
  get isBusy(): boolean {
    return this.#free === 0;
  }

  /**
   * Returns or resolves with true once the look-up has a slot, and with false if there is no room for it. The caller must call
   * `release` once for each true.
   * @param source of the question, such as an address
   * @param isKnown true = the secret was good before
   */
  acquire(source: string, isKnown: boolean): boolean | Promise<boolean> {
    if (this.#free > 0) {
      this.#free--;
      return true;
    }
    const lines = isKnown ? this.#goodLines : this.#otherLines;
    const own = lines.sources < SOURCES_MAX || lines.lengthOf(source) > 0 ? source : '';
    if (this.#waiting >= this.#queued && !this.#makeRoom(own, isKnown)) return false;
    this.#waiting++;
    return new Promise((resolve) => lines.push(own, { resolve }));
  }

  release(): void {
    const next = this.#goodLines.next() ?? this.#otherLines.next();
    if (next === undefined) {
      this.#free++;
      return;
    }
    this.#waiting--;
    next.resolve(true);
  }

  #makeRoom(source: string, isKnown: boolean): boolean {
    const share = this.#queued / Math.max(1, this.#otherLines.sources);
    if (!isKnown && this.#otherLines.lengthOf(source) + 1 >= share) return false;
    const last = this.#otherLines.last();
    if (last === undefined) return false;
    this.#waiting--;
    last.resolve(false);
    return true;
  }
}

/** Marks of secrets that were good: 8 bytes each. */
const MARKS = 1_000_000;

/**
 * Remembers secrets that were good, also after their keys have left memory. It takes 8 MB, which are only taken once look-ups have
 * to wait. A mark says nothing about a key but that its look-up comes first.
 */
export class GoodSecrets {
  #marks: Float64Array | undefined;

  has(digest: string): boolean {
    return this.#marks?.[placeOf(digest)] === markOf(digest);
  }

  /** @param isBusy true = look-ups wait now */
  add(digest: string, isBusy: boolean): void {
    if (isBusy) this.#marks ??= new Float64Array(MARKS);
    if (this.#marks) this.#marks[placeOf(digest)] = markOf(digest);
  }
}

const bytesOf = (digest: string, from: number, count: number): number => {
  let value = 0;
  for (let i = from; i < from + count; i++) value = value * 256 + digest.charCodeAt(i);
  return value;
};
// Digests are already random, and the bytes of both are others.
const placeOf = (digest: string): number => bytesOf(digest, 8, 4) % MARKS;
const markOf = (digest: string): number => 1 + bytesOf(digest, 0, 6);

const DIGEST_BYTES = 32;

/**
 * A cache of secrets without a key, or without a key that this verifier answers for. Each is stored for a
 * while by its digest (`digestOf`), with its verdict. The digest determines the place, and a later digest
 * overwrites an earlier one. Digests are stored as bytes: a flood of made-up keys writes here at every
 * request, and long-lived objects would make every scavenge longer ("Garbage" in verifier/doors/lane/README.md).
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
