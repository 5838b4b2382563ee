import { Client, errors } from 'undici';

/** Request that a caller repeats, and its reading of the answer. */
export interface Ask {
  readonly path: string;
  readonly body: object;
  readonly headers?: Readonly<Record<string, string>>;
}

/** One attempt: when, on the monotonic clock, and what came of it: a verdict, a status, or an error's code. */
export interface Attempt {
  readonly outcome: string;
  readonly startedAtMs: number;
  readonly endedAtMs: number;
}

/**
 * All callers together send about so many requests a second. Each rests at random in between, so that its connection is
 * idle now and then. More would prove no more, and take the processors from what is tested.
 */
const REQUESTS_PER_S = 200;

/** Callers that ask again and again, each over a connection of its own. */
export class Load {
  readonly attempts: Attempt[] = [];
  readonly #callers: Promise<void>[];
  readonly #restMsMax: number;
  #running = true;

  /**
   * @param address `http://host:port`
   * @param ask what to send next
   * @param options.untilClosed a caller stops when its connection is closed, and it was told or not
   * @param options.keepAlive otherwise a new connection for each request
   */
  constructor(
    address: string,
    ask: () => Ask,
    options: { callers: number; untilClosed?: boolean; keepAlive?: boolean },
  ) {
    this.#restMsMax = (2 * 1000 * options.callers) / REQUESTS_PER_S;
    this.#callers = Array.from({ length: options.callers }, () => this.#call(address, ask, options));
  }

  /** Outcomes, each once with its number. */
  get outcomes(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { outcome } of this.attempts) counts[outcome] = (counts[outcome] ?? 0) + 1;
    return counts;
  }

  /** Resolves when this many more attempts have ended. */
  async more(count: number): Promise<void> {
    const target = this.attempts.length + count;
    while (this.attempts.length < target) await new Promise((resolve) => setTimeout(resolve, 5));
  }

  /** Lets every caller finish what it has begun. */
  async stop(): Promise<void> {
    this.#running = false;
    await this.ended();
  }

  /** Resolves when every caller has stopped by itself. */
  async ended(): Promise<void> {
    await Promise.all(this.#callers);
  }

  async #call(
    address: string,
    ask: () => Ask,
    { untilClosed, keepAlive = true }: { untilClosed?: boolean; keepAlive?: boolean },
  ): Promise<void> {
    const client = new Client(address, keepAlive ? {} : { pipelining: 0 });
    for (let closed = false; this.#running && !(untilClosed && closed); ) {
      const startedAtMs = performance.now();
      const { path, body, headers } = ask();
      let outcome: string;
      try {
        const answer = await client.request({
          method: 'POST',
          path,
          headers: { 'content-type': 'application/json', ...headers },
          body: JSON.stringify(body),
        });
        closed = answer.headers['connection'] === 'close';
        const text = await answer.body.text();
        const { code } = (text.startsWith('{') ? JSON.parse(text) : {}) as { code?: string };
        outcome = code ?? String(answer.statusCode);
      } catch (error) {
        outcome = codeOf(error);
        closed = true;
      }
      this.attempts.push({ outcome, startedAtMs, endedAtMs: performance.now() });
      await new Promise((resolve) => setTimeout(resolve, Math.random() * this.#restMsMax));
    }
    await client.destroy();
  }
}

function codeOf(error: unknown): string {
  if (error instanceof errors.UndiciError || (error instanceof Error && 'code' in error))
    return String(error.code);
  return String(error);
}
