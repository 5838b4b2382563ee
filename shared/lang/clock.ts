/** A started timer; `cancel` is idempotent. */
export interface Timer {
  cancel(): void;
}

/**
 * The one source of time, handed to everything that reads a clock or waits, so that tests step it.
 * All values are milliseconds.
 */
export interface Clock {
  /** Never goes back and does not follow changes of the system's date; fractional. */
  monotonicMs(): number;
  /** Unix time. May jump in either direction. */
  wallMs(): number;
  /**
   * Calls `run` once, no earlier than `delayMs` from now. Does not keep the process alive. What the network has brought by
   * then is read first, so that a process that was held up does not take its own lateness for somebody else's.
   */
  after(delayMs: number, run: () => void): Timer;
}

export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  after(delayMs, run) {
    let late: NodeJS.Immediate | undefined;
    const timer = setTimeout(() => {
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

/** Keeps the process alive until it is cancelled: for what somebody waits for while only such timers run. */
export function holdProcess(): Timer {
  const timer = setInterval(() => undefined, 2 ** 30);
  return { cancel: () => clearInterval(timer) };
}

/** Resolves after `delayMs`, or at once with `signal`. Never rejects. */
export function pause(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const settle = () => {
      timer.cancel();
      signal?.removeEventListener('abort', settle);
      resolve();
    };
    const timer = clock.after(delayMs, settle);
    signal?.addEventListener('abort', settle, { once: true });
  });
}

/**
 * Pauses that may be ended early, one after the other. `pause` with an AbortController does the same, but an abort makes an
 * error with a stack trace, 20 µs: too much for what happens with every message or call.
 */
export class Waker {
  #isWoken = false;
  #timer: Timer | undefined;
  #resolve: (() => void) | undefined;

  /** Ends the present pause, or else the next one at once. */
  wake(): void {
    this.#isWoken = true;
    this.#end();
  }

  /** Forgets that it was woken. */
  reset(): void {
    this.#isWoken = false;
  }

  /** Resolves after `delayMs`, or when woken since `reset`. Never rejects. One at a time. */
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

/** `work`, which goes on either way, or after `limitMs` a rejection with what `expired` returns. */
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

/** Capped exponential backoff with full jitter over its upper half; `attempt` counts from 0. */
export function backoffMs(attempt: number, firstMs: number, maxMs: number, random: () => number): number {
  const ceiling = Math.min(maxMs, firstMs * 2 ** Math.min(attempt, 30));
  return ceiling / 2 + (ceiling / 2) * random();
}
