import type { Clock } from './clock.ts';
import { SlotList } from './slot-list.ts';

/** An item that must end in time. */
export interface Deadline<T> {
  readonly item: T;
  readonly dueMs: number;
  /** True once the deadline has passed. */
  hasPassed: boolean;
  place: number;
}

/**
 * Deadlines of equal length that are set and cleared with every request. They share one timer, which is
 * cheaper than one timer per request.
 */
export class Deadlines<T> {
  readonly #clock: Clock;
  readonly #limitMs: number;
  readonly #onPass: (item: T) => void;
  readonly #running = new SlotList<Deadline<T>>();
  #isWatching = false;

  /** @param onPass called with each item that has not ended after `limitMs` */
  constructor(clock: Clock, limitMs: number, onPass: (item: T) => void) {
    this.#clock = clock;
    this.#limitMs = limitMs;
    this.#onPass = onPass;
  }

  /** Starts a deadline for `item`. The caller passes the returned deadline to `end`. */
  begin(item: T): Deadline<T> {
    const deadline = { item, dueMs: this.#clock.monotonicMs() + this.#limitMs, hasPassed: false, place: 0 };
    deadline.place = this.#running.add(deadline);
    if (!this.#isWatching) this.#checkAfter(this.#limitMs);
    return deadline;
  }

  end(deadline: Deadline<T>): void {
    if (!deadline.hasPassed) this.#running.remove(deadline.place);
  }

  #checkAfter(ms: number): void {
    this.#isWatching = true;
    this.#clock.after(ms, () => this.#check());
  }

  #check(): void {
    const nowMs = this.#clock.monotonicMs();
    let nextMs = Number.POSITIVE_INFINITY;
    const late: Deadline<T>[] = [];
    for (const deadline of this.#running) {
      if (deadline.dueMs <= nowMs) late.push(deadline);
      else nextMs = Math.min(nextMs, deadline.dueMs);
    }
    this.#isWatching = false;
    if (nextMs < Number.POSITIVE_INFINITY) this.#checkAfter(nextMs - nowMs);
    for (const deadline of late) {
      this.end(deadline);
      deadline.hasPassed = true;
      this.#onPass(deadline.item);
    }
  }
}
