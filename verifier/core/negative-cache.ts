import type { Clock } from '#shared/lang/clock.ts';
import type { Verdict } from './verdict.ts';

const DIGEST_BYTES = 32;

/**
 * A cache of secrets without a key, or without a key that this verifier answers for. Each is stored for a
 * while by its digest (`digestOf`), with its verdict. The digest determines the place, and a later digest
 * overwrites an earlier one. Digests are stored as bytes: a flood of made-up keys writes here at every
 * request, and long-lived objects would make every scavenge longer ("Garbage" in verifier/request-path.md).
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
