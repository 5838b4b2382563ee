import type { Clock } from '../../../../shared/process/clock.ts';
import { turns } from '../../../harness/waiting.ts';

const ROUNDS = 2;

/** Time that passes when nothing else is left to do: no call is under way, and nothing that one made ready. */
export class IdleClock implements Clock {
  #nowMs = 1_800_000_000_000;
  readonly #timers = new Set<{ dueMs: number; run: () => void }>();
  readonly #calls = new Set<Promise<unknown>>();

  monotonicMs = () => this.#nowMs;
  wallMs = () => this.#nowMs;
  after(delayMs: number, run: () => void) {
    const timer = { dueMs: this.#nowMs + Math.max(0, delayMs), run };
    this.#timers.add(timer);
    return { cancel: () => void this.#timers.delete(timer) };
  }

  /** No time passes until a call has its answer. */
  during<T>(call: Promise<T>): Promise<T> {
    const done = () => void this.#calls.delete(over);
    const over: Promise<void> = call.then(done, done);
    this.#calls.add(over);
    return call;
  }

  /** Lets time pass until something holds; fails after `msMax`. */
  async until(holds: () => boolean, msMax = 20_000): Promise<void> {
    const endMs = this.#nowMs + msMax;
    for (;;) {
      for (let i = 0; i < ROUNDS; ) {
        await turns();
        if (this.#calls.size === 0) i++;
        else await Promise.race(this.#calls);
      }
      if (holds()) return;
      const [next] = [...this.#timers].sort((a, b) => a.dueMs - b.dueMs);
      if (!next || next.dueMs > endMs) throw new Error(`not within ${msMax} ms: ${holds}`);
      this.#timers.delete(next);
      this.#nowMs = Math.max(this.#nowMs, next.dueMs);
      next.run();
    }
  }

  pass = async (ms: number): Promise<void> => {
    let isOver = false;
    this.after(ms, () => {
      isOver = true;
    });
    await this.until(() => isOver, ms + 1);
  };
}
