import type { Clock, Timer } from '../../../../shared/process/clock.ts';
import { turns } from '../../../harness/waiting.ts';

/** A clock that goes on only when a test says so. */
export class SteppedClock implements Clock {
  nowMs = 1_790_000_000_000;
  readonly #timers = new Set<{ atMs: number; run: () => void }>();

  monotonicMs(): number {
    return this.nowMs;
  }

  wallMs(): number {
    return this.nowMs;
  }

  after(delayMs: number, run: () => void): Timer {
    const timer = { atMs: this.nowMs + delayMs, run };
    this.#timers.add(timer);
    return { cancel: () => void this.#timers.delete(timer) };
  }

  /** Lets so much time pass, timer by timer, each followed by all that it causes. */
  async pass(ms: number): Promise<void> {
    const endMs = this.nowMs + ms;
    await turns();
    for (;;) {
      const due = [...this.#timers].filter(({ atMs }) => atMs <= endMs).sort((a, b) => a.atMs - b.atMs)[0];
      if (!due) break;
      this.#timers.delete(due);
      this.nowMs = Math.max(this.nowMs, due.atMs);
      due.run();
      await turns();
    }
    this.nowMs = endMs;
  }
}
