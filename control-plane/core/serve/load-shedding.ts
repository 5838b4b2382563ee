import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Clock } from '#shared/process/clock.ts';

const SAMPLE_MS = 500;
const RESOLUTION_MS = 10;

/** Tells when the event loop lags so much that new calls are better refused. */
export class LoadShedding {
  readonly #clock: Clock;
  readonly #delays = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  #timer: NodeJS.Timeout | undefined;
  #isSlow = false;
  /** When it was slow first, and last; by the monotonic clock. */
  #sinceMs = 0;
  #seenMs = Number.NEGATIVE_INFINITY;

  /** @param delayMsMax mean delay of the event loop above which calls are refused; 0 = never */
  constructor(delayMsMax: number, clock: Clock) {
    this.#clock = clock;
    if (delayMsMax === 0) return;
    this.#delays.enable();
    this.#timer = setInterval(() => {
      // NaN if the event loop stood still for the whole sample.
      this.#isSlow = !(this.#delays.mean / 1e6 - RESOLUTION_MS <= delayMsMax);
      this.#delays.reset();
    }, SAMPLE_MS).unref();
  }

  /** Tells whether a call that arrives now is to be refused. */
  isDue(): boolean {
    if (!this.#isSlow) return false;
    // A single pause of the process shows in one sample and is then over; load shows in the next sample too.
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#seenMs > 2 * SAMPLE_MS) this.#sinceMs = nowMs;
    this.#seenMs = nowMs;
    return nowMs - this.#sinceMs > SAMPLE_MS;
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#delays.disable();
  }
}
