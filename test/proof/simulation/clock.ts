import type { Clock } from '../../../shared/process/clock.ts';
import type { Random } from './random.ts';

/** What a right wall clock shows at first. */
export const TRUE_WALL_MS = 1.7e12;

interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly settles: boolean;
  run: (() => void) | undefined;
}

/** True time, which nobody in the simulation can read, and all that is going to happen, in order. */
export class Timeline {
  nowMs = 0;
  /** Events that ran. */
  steps = 0;
  /** Set to end it all at once. */
  halted = false;
  readonly #heap: Event[] = [];
  #order = 0;

  /**
   * Runs something `delayMs` from now; events of one moment run in the order they were asked for.
   * @param settles whether it may settle promises, as what a process does may, and what a server does does not
   */
  after(delayMs: number, run: () => void, settles = true): ReturnType<Clock['after']> {
    const event: Event = { atMs: this.nowMs + Math.max(0, delayMs), order: this.#order++, settles, run };
    this.#push(event);
    return {
      cancel: () => {
        event.run = undefined;
      },
    };
  }

  /** Lets time pass until `untilMs`. Every promise that an event settles is acted upon before the next event. */
  async run(untilMs: number): Promise<void> {
    await settled();
    for (let event = this.#heap[0]; event && event.atMs <= untilMs && !this.halted; event = this.#heap[0]) {
      this.#pop();
      if (!event.run) continue;
      this.nowMs = event.atMs;
      this.steps++;
      event.run();
      if (event.settles) await settled();
    }
    this.nowMs = untilMs;
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.push(event) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = heap[above] as Event;
      if (!before(event, parent)) break;
      heap[at] = parent;
      at = above;
    }
    heap[at] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (!last || heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      const [left, right] = [heap[child], heap[child + 1]];
      if (!left) break;
      const smaller = right && before(right, left) ? right : left;
      if (smaller === right) child++;
      if (!before(smaller, last)) break;
      heap[at] = smaller;
      at = child;
    }
    heap[at] = last;
  }
}

const before = (a: Event, b: Event): boolean => a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);

/** Node empties the queue of promise jobs before each next tick, so this comes back when nothing is left to do. */
const settled = (): Promise<void> => new Promise((resolve) => process.nextTick(resolve));

/**
 * A machine with one process on it: its clocks, and whether it runs. A paused one (SIGSTOP, a stalled event
 * loop) does later what came meanwhile, while its clocks go on; a crashed one never does anything again.
 */
export class Machine implements Clock {
  readonly name: string;
  readonly #timeline: Timeline;
  readonly #random: Random;
  /** Monotonic milliseconds that pass in one true millisecond. */
  readonly #rate: number;
  readonly #bootMs: number;
  #wallOffsetMs: number;
  #waiting: { sockets: (() => void)[]; timers: (() => void)[] } | undefined;
  alive = true;

  /** @param skewMs by how much the wall clock differs from true time at most, at first */
  constructor(name: string, timeline: Timeline, random: Random, rate: number, skewMs = 1e4) {
    this.name = name;
    this.#timeline = timeline;
    this.#random = random;
    this.#rate = rate;
    this.#bootMs = timeline.nowMs - random.between(1000, 1e6);
    this.#wallOffsetMs = TRUE_WALL_MS + random.between(-skewMs, skewMs);
  }

  get paused(): boolean {
    return this.#waiting !== undefined;
  }

  monotonicMs(): number {
    return (this.#timeline.nowMs - this.#bootMs) * this.#rate;
  }

  wallMs(): number {
    return Math.floor(this.#wallOffsetMs + this.#timeline.nowMs * this.#rate);
  }

  after(delayMs: number, run: () => void): ReturnType<Clock['after']> {
    let cancelled = false;
    const lateMs = this.#random.chance(0.1) ? this.#random.between(0, 3) : 0.001;
    const timer = this.#timeline.after(delayMs / this.#rate + lateMs, () => {
      this.deliver(() => {
        if (!cancelled) run();
      }, 'timers');
    });
    return {
      cancel: () => {
        cancelled = true;
        timer.cancel();
      },
    };
  }

  /** Hands the process something to do: now, or when it goes on. */
  deliver(run: () => void, from: 'sockets' | 'timers' = 'sockets'): void {
    if (!this.alive) return;
    if (this.#waiting) this.#waiting[from].push(run);
    else run();
  }

  pause(): void {
    this.#waiting ??= { sockets: [], timers: [] };
  }

  /** Goes on. An event loop may look at its timers or at its sockets first. */
  resume(): void {
    if (!this.#waiting) return;
    const { sockets, timers } = this.#waiting;
    this.#waiting = undefined;
    for (const run of this.#random.chance(0.5) ? [...sockets, ...timers] : [...timers, ...sockets]) {
      this.#timeline.after(0, () => this.deliver(run));
    }
  }

  jumpWallClock(byMs: number): void {
    this.#wallOffsetMs += byMs;
  }
}
