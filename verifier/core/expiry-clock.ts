import type { Clock } from '#shared/process/clock.ts';

/**
 * Time for which a date must have stood to be trusted. It stands while the offset changes by less than
 * STEP_MS.
 */
export const STANDING_MS = 3_600_000;
/** A smaller change of the date is no step, but rounding or the adjustment of a clock. */
const STEP_MS = 1000;

/**
 * The date for checking expiry. A date that is set forward counts immediately. A date that is set back below
 * one that stood for an hour counts only after standing for an hour itself; until then an expired key stays
 * expired. So a wrong date, in either direction, has no effect later than an hour after its correction; if it
 * lasted less than an hour, its effect ends with the correction. The date is stored as its offset from the
 * monotonic clock, because the offset changes only when somebody sets the date.
 */
export class ExpiryClock {
  readonly #clock: Clock;
  /** Offset of the latest date that has stood for an hour, or else of the first date, in milliseconds. */
  #standingMs: number;
  /** Offset of the current date, and the monotonic time since which it stands, in milliseconds. */
  #presentMs: number;
  #sinceMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sinceMs = clock.monotonicMs();
    this.#presentMs = this.#standingMs = clock.wallMs() - this.#sinceMs;
  }

  /** Returns Unix milliseconds. */
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
