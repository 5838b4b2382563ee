const [SECOND, MINUTE, HOUR] = [1000, 60_000, 3_600_000];

/** Waits after each failed attempt, milliseconds; the last one repeats. */
const WAITS = [
  5 * SECOND,
  30 * SECOND,
  2 * MINUTE,
  10 * MINUTE,
  30 * MINUTE,
  HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
];
/** Part of a wait by which it is at most longer or shorter, so that retries do not come together. */
const JITTER = 0.2;

/** Time for which the delivery of an event is tried. */
export const DELIVERY_MS_MAX = 72 * HOUR;
/** Number of consecutive failures after which an endpoint gets only one attempt at a time. */
export const FAILURES_TO_PAUSE = 5;
const PAUSE_MS_MAX = 5 * MINUTE;

/**
 * Returns the wait before the next attempt to deliver an event, milliseconds; undefined = it is given up.
 * @param attempts number of failed attempts, at least 1
 * @param ageMs time since the event was queued
 * @param chance random number from 0 to below 1
 */
export function retryDelayMs(attempts: number, ageMs: number, chance: number): number | undefined {
  const waitMs = jittered(WAITS[Math.min(attempts, WAITS.length) - 1] ?? 0, chance);
  return ageMs + waitMs > DELIVERY_MS_MAX ? undefined : waitMs;
}

/**
 * Returns how long an endpoint is left alone after consecutive failures, milliseconds; 0 = it is not paused.
 */
export function endpointPauseMs(failures: number, chance: number): number {
  if (failures < FAILURES_TO_PAUSE) return 0;
  const doublings = Math.min(failures - FAILURES_TO_PAUSE, 10);
  return jittered(Math.min(PAUSE_MS_MAX, 5 * SECOND * 2 ** doublings), chance);
}

const jittered = (ms: number, chance: number): number => ms * (1 - JITTER + 2 * JITTER * chance);
