import type { Clock } from '#shared/lang/clock.ts';
import type { Verdict } from './verdict/verdict.ts';

const DIGEST_BYTES = 32;

/**
 * Secrets of which no key exists, or none that is served here, by their digest (`digestOf`), each with its verdict, for
 * a while. A digest determines its own place, and a later one takes it over. Kept as bytes: a flood of made-up keys
 * writes here at every request, and objects that stay alive make every scavenge longer ("Garbage" in
 * verifier/request-path.md).
 */
export class NegativeCache {
  readonly #clock: Clock;
  readonly #max: number;
  readonly #ttlMs: number;
  readonly #digests: Uint8Array;
  /** When each was asked for, monotonic milliseconds. */
  readonly #sincesMs: Float64Array;
  readonly #verdicts: (Verdict | undefined)[];

  /** @param ttlMs how long one is remembered, milliseconds */
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

  /** @param sinceMs when Redis was asked, or earlier; monotonic milliseconds */
  set(digest: string, verdict: Verdict, sinceMs: number): void {
    const place = this.#placeOf(digest);
    for (let i = 0, at = place * DIGEST_BYTES; i < DIGEST_BYTES; i++, at++) {
      this.#digests[at] = digest.charCodeAt(i);
    }
    this.#sincesMs[place] = sinceMs;
    this.#verdicts[place] = verdict;
  }

  /** Digests are random already, and 24 bits of one are enough for a million places. */
  #placeOf(digest: string): number {
    return (digest.charCodeAt(0) | (digest.charCodeAt(1) << 8) | (digest.charCodeAt(2) << 16)) % this.#max;
  }
}
