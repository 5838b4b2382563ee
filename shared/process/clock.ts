/** A started timer; `cancel` is idempotent. */
export interface Timer {
  cancel(): void;
}

/**
 * The only source of time. Everything that reads a clock or waits gets it as an argument, so that tests can
 * step it. All values are milliseconds.
 */
export interface Clock {
  /** Returns a fractional time that never goes back and does not follow changes of the system's date. */
  monotonicMs(): number;
  /** Returns Unix time, which may jump in either direction. */
  wallMs(): number;
  /**
   * Calls `run` once, no earlier than `delayMs` from now, and does not keep the process alive. The process first
   * reads what the network has delivered by then, so that one that was held up does not take an answer for late.
   */
  after(delayMs: number, run: () => void): Timer;
}

/** One moment on both clocks. */
export interface Instant {
  readonly monotonicMs: number;
  readonly wallMs: number;
}

export const instant = (clock: Clock): Instant => ({
  monotonicMs: clock.monotonicMs(),
  wallMs: clock.wallMs(),
});

export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  after(delayMs, run) {
    let late: NodeJS.Immediate | undefined;
    const timer = setTimeout(() => {
      // Behind the input of this turn of the event loop.
      late = setImmediate(run);
    }, delayMs);
    timer.unref();
    return {
      cancel() {
        clearTimeout(timer);
        clearImmediate(late);
      },
    };
  },
};

/**
 * Keeps the process alive until the timer is cancelled. Needed by whoever only waits for timers of `Clock`, which do
 * not keep it alive.
 */
export function holdProcess(): Timer {
  const timer = setInterval(() => undefined, 2 ** 30);
  return { cancel: () => clearInterval(timer) };
}

/** Resolves after `delayMs`, or immediately when `signal` aborts. Never rejects. */
export function pause(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = () => {
      timer.cancel();
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = clock.after(delayMs, end);
    signal?.addEventListener('abort', end, { once: true });
  });
}

/**
 * A series of pauses, one at a time, each of which `wake` can end early. `pause` with an AbortController does
 * the same, but each abort creates an error with a stack trace. That takes 20 µs, too long for every message
 * or call.
 */
export class Waker {
  #isWoken = false;
  #timer: Timer | undefined;
  #resolve: (() => void) | undefined;

  /** Ends the current pause. If there is none, the next pause ends immediately. */
  wake(): void {
    this.#isWoken = true;
    this.#end();
  }

  /** Forgets earlier calls of `wake`. */
  reset(): void {
    this.#isWoken = false;
  }

  /**
   * Resolves after `delayMs`, or when `wake` was called since the last `reset`. Never rejects. Only one pause
   * may run at a time.
   */
  pause(clock: Clock, delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      if (this.#isWoken) return resolve();
      this.#resolve = resolve;
      this.#timer = clock.after(delayMs, () => this.#end());
    });
  }

  #end(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#resolve?.();
    this.#resolve = undefined;
  }
}

/**
 * Settles as `work` does, or rejects with the error from `timeoutError` after `limitMs`. Does not stop
 * `work`.
 */
export function atMost<T>(
  clock: Clock,
  limitMs: number,
  work: Promise<T>,
  timeoutError: () => Error,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = clock.after(limitMs, () => reject(timeoutError()));
    work.then(
      (value) => {
        timer.cancel();
        resolve(value);
      },
      (error) => {
        timer.cancel();
        reject(error);
      },
    );
  });
}

/** Returns a capped exponential backoff, with jitter over its upper half; `attempt` counts from 0. */
export function backoffMs(attempt: number, firstMs: number, maxMs: number, random: () => number): number {
  const ceiling = Math.min(maxMs, firstMs * 2 ** Math.min(attempt, 30));
  return ceiling / 2 + (ceiling / 2) * random();
}
