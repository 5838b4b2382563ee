/** Longest wait for something to come to hold, on a machine that is many times slower than usual. */
export const HOLDS_MS_MAX = 90_000;
/** Time of a test and of a hook. It is several waits, so that what hangs is told by the wait for it, not by this. */
export const TEST_MS_MAX = 300_000;
/** Settings for who reaches Redis: on a busy machine with a slow disk it answers late, which is no outage. */
export const PATIENT = { REDIS_CONNECT_TIMEOUT_MS: '20000', REDIS_COMMAND_TIMEOUT_MS: '20000' } as const;
/** Pauses between two looks, milliseconds: short at first, longer for what takes its time, so that looking costs little. */
const PAUSE_MS = { first: 5, max: 50, growth: 1.3 } as const;

/**
 * Looks again and again until something holds; failing to look counts as not yet. Rejects after `HOLDS_MS_MAX`.
 */
export async function eventually(
  holds: () => boolean | Promise<boolean>,
  what = 'it did not come to hold',
): Promise<void> {
  const giveUpAtMs = performance.now() + HOLDS_MS_MAX;
  let fault: unknown;
  for (let pauseMs: number = PAUSE_MS.first; ; pauseMs = Math.min(PAUSE_MS.max, pauseMs * PAUSE_MS.growth)) {
    try {
      if (await holds()) return;
      fault = undefined;
    } catch (error) {
      fault = error;
    }
    if (performance.now() > giveUpAtMs) throw new Error(what, { cause: fault });
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

/**
 * Resolves when a number stays what it is while something else goes its whole way, and goes it again: what could
 * change the number would have done so by then.
 */
export async function settled(read: () => number, meanwhile: () => Promise<unknown>): Promise<number> {
  for (;;) {
    const before = read();
    for (let i = 0; i < 5; i++) await meanwhile();
    if (read() === before) return before;
  }
}

/** Resolves when this process has done all that was ready to be done, and what that made ready. */
export async function turns(): Promise<void> {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
}

/**
 * Resolves when so much time has passed, for a time-out of what is tested that must have run out, or must not yet.
 * Never to see whether something happened: `test/tidy.test.ts` knows each place.
 */
export function elapsed(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Blocks the event loop for so long, without a processor. */
export function blockFor(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
