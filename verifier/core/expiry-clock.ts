import type { Clock } from '#shared/lang/clock.ts';

/** Time that a date must have stood, less than STEP_MS from where it was first seen, to be relied on. */
const STANDING_MS = 3_600_000;
/** A smaller change of the date is no step: rounding, and clocks that are brought into line. */
const STEP_MS = 1000;

/**
 * The date for judging expiry. A date that is set forward counts at once. One that is set back below a date that had stood
 * for an hour counts only after it has stood for an hour itself; until then an expired key stays expired. So a mistake in
 * either direction heals, and one that lasted less than an hour heals as soon as it is corrected. The date is kept as its
 * distance from the monotonic clock, which changes only when somebody sets it.
 */
export class ExpiryClock {
  readonly #clock: Clock;
  /** Offset of the latest date that has stood for an hour, or of the first; milliseconds. */
  #standingMs: number;
  /** Offset of the present date, and since when it stands, on the monotonic clock; milliseconds. */
  #presentMs: number;
  #sinceMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sinceMs = clock.monotonicMs();
    this.#presentMs = this.#standingMs = clock.wallMs() - this.#sinceMs;
  }

  /** Unix milliseconds. */
  nowMs(): number {
    const monotonicMs = this.#clock.monotonicMs();
    const aheadMs = this.#clock.wallMs() - monotonicMs;
    if (Math.abs(aheadMs - this.#presentMs) >= STEP_MS) {
      this.#presentMs = aheadMs;
      this.#sinceMs = monotonicMs;
    } else if (monotonicMs - this.#sinceMs >= STANDING_MS) {
      this.#standingMs = this.#presentMs;
    }
    return monotonicMs + Math.max(this.#standingMs, aheadMs);
  }
}
