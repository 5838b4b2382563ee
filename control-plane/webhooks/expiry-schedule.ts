const DAY_MS = 86_400_000;
/** An expiry that is this long over when it is first seen is old news. */
const OLD_MS = 3 * DAY_MS;

/** A key whose next event is due. */
export interface DueKey {
  /** When the event was due, Unix milliseconds; 0 = the expiry was set and not looked at yet. */
  readonly dueMs: number;
  readonly expiresMs: number;
}

/** The event that is due, and when the next one is. */
interface DueEvent {
  /** Within how many days the key expires; 0 = it has expired; undefined = nothing is to be sent. */
  readonly days?: number;
  /** Unix milliseconds; undefined = never. */
  readonly nextMs?: number;
}

/**
 * Returns the event that is due about a key's expiry. If several leads have passed when an expiry is set, only the
 * shortest counts.
 * @param leads days before the expiry at which an event is sent
 */
export function dueEvent({ dueMs, expiresMs }: DueKey, leads: readonly number[], nowMs: number): DueEvent {
  const restMs = expiresMs - nowMs;
  if (restMs <= 0) return dueMs === 0 && restMs < -OLD_MS ? {} : { days: 0 };
  const passed = leads.filter((days) => restMs <= days * DAY_MS);
  const ahead = leads.filter((days) => restMs > days * DAY_MS);
  const nextMs = expiresMs - Math.max(0, ...ahead) * DAY_MS;
  return passed.length === 0 ? { nextMs } : { days: Math.min(...passed), nextMs };
}
