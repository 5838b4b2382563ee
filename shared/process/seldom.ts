import type { Clock } from './clock.ts';

/** A log line that each request could cause, so it is written only once in a period. */
export class Seldom {
  readonly #clock: Clock;
  readonly #periodMs: number;
  #lastMs = Number.NEGATIVE_INFINITY;
  #unsaid = 0;

  constructor(clock: Clock, periodMs = 60_000) {
    this.#clock = clock;
    this.#periodMs = periodMs;
  }

  /** Calls `say` unless it was called less than a period ago, with how often it was not called meanwhile. */
  tell(say: (unsaid: number) => void): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#lastMs < this.#periodMs) {
      this.#unsaid++;
      return;
    }
    const unsaid = this.#unsaid;
    this.#lastMs = nowMs;
    this.#unsaid = 0;
    say(unsaid);
  }
}
