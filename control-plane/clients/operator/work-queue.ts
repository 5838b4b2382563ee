import { backoffMs, type Clock, type Timer } from '#shared/process/clock.ts';

const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 300_000;
const URGENT_MAX_MS = 30_000;
const LATER_MS = 1000;

interface WorkQueueOptions {
  readonly clock: Clock;
  /** Maximum number of names that are worked on at once. */
  readonly atOnce: number;
  readonly chance: () => number;
  /** Tells whether the work must come again within half a minute, however often it failed. */
  readonly isUrgent: (name: string) => boolean;
  /** Works on what has this name, and resolves with the time after which to do so again, if any. May reject. */
  readonly work: (name: string) => Promise<number | undefined>;
  readonly onError: (name: string, error: unknown) => void;
}

/**
 * Names of what must be looked at. However often one is added, it waits once, and is never worked on twice at a time. Work
 * that failed comes again, later each time.
 */
export class WorkQueue {
  readonly #options: WorkQueueOptions;
  readonly #waiting = new Set<string>();
  readonly #running = new Set<string>();
  readonly #failures = new Map<string, number>();
  readonly #timers = new Map<string, { readonly timer: Timer; readonly dueMs: number }>();
  #isStopped = false;

  constructor(options: WorkQueueOptions) {
    this.#options = options;
  }

  /** Number of names that wait or are worked on; those that come again later do not count. */
  get length(): number {
    return this.#waiting.size + this.#running.size;
  }

  add(name: string): void {
    this.#timers.get(name)?.timer.cancel();
    this.#timers.delete(name);
    this.#waiting.add(name);
    this.#next();
  }

  /** Adds a name after a while, unless it waits already. */
  addLater(name: string): void {
    if (!this.#timers.has(name)) this.#addAfter(name, LATER_MS);
  }

  stop(): void {
    this.#isStopped = true;
    for (const { timer } of this.#timers.values()) timer.cancel();
  }

  #addAfter(name: string, delayMs: number): void {
    if (this.#waiting.has(name) || this.#isStopped) return;
    const dueMs = this.#options.clock.monotonicMs() + delayMs;
    this.#timers.get(name)?.timer.cancel();
    this.#timers.set(name, { dueMs, timer: this.#options.clock.after(delayMs, () => this.add(name)) });
  }

  #next(): void {
    for (const name of this.#waiting) {
      if (this.#isStopped || this.#running.size >= this.#options.atOnce) return;
      if (this.#running.has(name)) continue;
      this.#waiting.delete(name);
      this.#running.add(name);
      void this.#run(name);
    }
  }

  async #run(name: string): Promise<void> {
    const { work, chance, onError, isUrgent } = this.#options;
    try {
      const againMs = await work(name);
      this.#failures.delete(name);
      if (againMs !== undefined) this.#addAfter(name, againMs);
    } catch (error) {
      onError(name, error);
      const failures = this.#failures.get(name) ?? 0;
      this.#failures.set(name, failures + 1);
      this.#addAfter(
        name,
        backoffMs(failures, RETRY_FIRST_MS, isUrgent(name) ? URGENT_MAX_MS : RETRY_MAX_MS, chance),
      );
    } finally {
      this.#running.delete(name);
      this.#next();
    }
  }
}
