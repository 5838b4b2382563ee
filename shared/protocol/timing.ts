/**
 * The times of the protocol hold together. Let the clocks of two machines differ in speed by at most `DRIFT`:
 *
 * - A lease of L ends on its follower's clock L after its SYNC was sent. On any other clock that is at most (1 + DRIFT) · L. So
 *   after `fenceMs(L)`, which counts from the answer to a later write, it is over: nobody answers from the state before.
 * - What ends on another clock in T may be used for `withinMs(T)` on one's own: it is never used after its end.
 *
 * Only differences of time on one clock are compared, and each counts from an event before the one that matters: from
 * the sending of what grants, and from the answer to what revokes.
 */

/** Bounds of `LEASE_MS`, and its default, in milliseconds. */
export const LEASE = { minMs: 500, maxMs: 600_000, usualMs: 10_000 } as const;

/**
 * Bounds of `tokenLeewayMs`, and its default, in milliseconds. Many services accept a token for a minute after its end: by whole seconds, so
 * for up to one more, and by clocks that differ from that of Redis by up to another.
 */
export const TOKEN_LEEWAY = { maxMs: 600_000, usualMs: 62_000 } as const;

/** Clocks of two machines differ in speed by at most this share. */
const DRIFT = 0.03;
/** Fractions of a millisecond are lost wherever a time is noted. */
const ROUNDING_MS = 10;

/**
 * Returns F, milliseconds: this long after a write, every lease granted before it is over. Only a verifier that acknowledged
 * the write can answer still.
 * @param leaseMs the longest lease that may have been granted
 * @param deposedMs how long a deposed primary may still grant leases
 */
export const fenceMs = (leaseMs: number, deposedMs: number): number =>
  leaseMs + deposedMs + Math.ceil(DRIFT * leaseMs) + ROUNDING_MS;

/** Returns how long one may use, by one's own clock, what ends after `otherMs` by another machine's. */
export const withinMs = (otherMs: number): number => otherMs / (1 + DRIFT);
