import type { Instant } from '../process/clock.ts';
import type { Window } from '../protocol/records/limits-in-memory.ts';
import { withinMs } from '../protocol/timing.ts';

/** Longest time for which a grant in a window is used without asking again, in milliseconds. */
export const GRANTED_MS = 4000;
const NEVER: Instant = { monotonicMs: Number.POSITIVE_INFINITY, wallMs: Number.POSITIVE_INFINITY };

/** The window in which a pool's numbers count, and the time until which its grant may be used. */
export class GrantWindow {
  /** As Redis numbers it; undefined = none yet. */
  number: number | undefined;
  /** On both clocks like a lease: the monotonic clock stops while a machine is suspended. */
  #until: Instant = NEVER;
  /** End of the window itself, on the monotonic clock. */
  #endsMs = Number.POSITIVE_INFINITY;
  #resetMs = 0;

  /** Returns true if the window itself has ended, as far as is known here. */
  hasEnded({ monotonicMs }: Pick<Instant, 'monotonicMs'>): boolean {
    return monotonicMs >= this.#endsMs;
  }

  isOver({ monotonicMs, wallMs }: Instant): boolean {
    return monotonicMs >= this.#until.monotonicMs || wallMs >= this.#until.wallMs;
  }

  /**
   * Enters the window of a reply.
   * @returns true = it is another one than before
   */
  enter(
    { number, leftMs }: { readonly number: number; readonly leftMs: number },
    { durationMs, calendar }: Window,
    sentAt: Instant,
  ): boolean {
    const isNew = number !== this.number;
    this.number = number;
    const { monotonicMs, wallMs } = sentAt;
    this.#endsMs = monotonicMs + leftMs;
    this.#resetMs = calendar ? number * 1000 : (number + 1) * durationMs;
    // Counts from the sending, so that the grant ends before the window, however late the reply is.
    const goodMs = withinMs(Math.min(leftMs, GRANTED_MS));
    this.#until = { monotonicMs: monotonicMs + goodMs, wallMs: wallMs + goodMs };
    return isNew;
  }

  /** Returns the end of the current window, in Unix milliseconds of Redis' clock. */
  resetMs(nowMs: number, { durationMs, calendar }: Window): number {
    if (nowMs < this.#endsMs || durationMs === 0 || calendar) return this.#resetMs;
    return this.#resetMs + durationMs * Math.floor(1 + (nowMs - this.#endsMs) / durationMs);
  }
}
