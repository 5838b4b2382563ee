import { Bag } from '#shared/bag.ts';
import type { Clock } from '#shared/clock.ts';
import { ApiError } from '#shared/errors.ts';
import type { Logger } from '#shared/log.ts';
import type { Downstream } from './exchange.ts';
import type { Answers, Question } from './verify-key.ts';

interface Asked extends Question {
  readonly response: Downstream;
  /** Whether it was there at the last round. */
  old: boolean;
}

/**
 * Requests that their key allowed and that still go on. Those that last, such as WebSockets, are judged again in
 * every round; what the key no longer allows is cut. Without a verdict they go on: they were allowed once.
 */
export class Ongoing {
  readonly #requests = new Bag<Asked>();
  readonly #answers: Answers;
  readonly #log: Pick<Logger, 'error'>;
  readonly #clock: Clock;
  readonly #periodMs: number;
  #timer: { cancel(): void } | undefined;

  constructor(answers: Answers, log: Pick<Logger, 'error'>, clock: Clock, periodMs: number) {
    this.#answers = answers;
    this.#log = log;
    this.#clock = clock;
    this.#periodMs = periodMs;
    this.#next();
  }

  /** To be followed by `end` with what it returns. */
  begin(response: Downstream, { key, apiId }: Question): number {
    return this.#requests.add({ response, key, apiId, old: false });
  }

  end(place: number): void {
    this.#requests.remove(place);
  }

  close(): void {
    this.#timer?.cancel();
  }

  #next(): void {
    this.#timer = this.#clock.after(this.#periodMs, () => {
      for (const asked of this.#requests) {
        if (asked.old) void this.#judge(asked);
        asked.old = true;
      }
      this.#next();
    });
  }

  async #judge({ response, key, apiId }: Asked): Promise<void> {
    try {
      const { code } = this.#answers.decide(key, apiId) ?? (await this.#answers.lookUp(key, apiId));
      if (code !== 'VALID') response.destroy();
    } catch (err) {
      if (!(err instanceof ApiError)) this.#log.error({ err }, 'a bug');
    }
  }
}
