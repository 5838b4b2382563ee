import type { Clock } from './clock.ts';

/** A log line that each request could cause, so it is written only once in a period, or once about each of some subjects. */
export class Seldom {
  readonly #clock: Clock;
  readonly #periodMs: number;
  readonly #subjectsMax: number;
  #beganMs = Number.NEGATIVE_INFINITY;
  readonly #subjects = new Set<string>();
  #unsaid = 0;

  /** @param subjectsMax number of subjects of which a period has a line */
  constructor(clock: Clock, periodMs = 60_000, subjectsMax = 1) {
    this.#clock = clock;
    this.#periodMs = periodMs;
    this.#subjectsMax = subjectsMax;
  }

  /** Calls `say` unless this period has its line about the subject, with how often it was not called before, about any. */
  tell(say: (unsaid: number) => void, subject = ''): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#beganMs >= this.#periodMs) {
      this.#beganMs = nowMs;
      this.#subjects.clear();
    }
    if (this.#subjects.has(subject) || this.#subjects.size >= this.#subjectsMax) {
      this.#unsaid++;
      return;
    }
    const unsaid = this.#unsaid;
    this.#subjects.add(subject);
    this.#unsaid = 0;
    say(unsaid);
  }
}
