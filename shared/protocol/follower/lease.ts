import type { Clock, Instant } from '../../process/clock.ts';

/** Largest difference between the wall clock of a machine with tokens and that of Redis, milliseconds. */
const SKEW_MS = 1000;
const NEVER: Instant = { monotonicMs: 0, wallMs: 0 };

/**
 * The right to answer from memory. It holds until `sentAt + L` of the last good SYNC, measured from when that
 * SYNC was *sent*, on both clocks of this machine. It is only a pair of numbers. No timer ends it, so the
 * first request after a stall or a SIGSTOP already reads the clock (Gray and Cheriton 1989, §2).
 */
export class Lease {
  #untilMonotonicMs = 0;
  #untilWallMs = 0;
  /** True if Redis said lately that the API has tokens; undefined = it has not said whether. */
  hasTokens: boolean | undefined;
  /** Their audiences; undefined = the API's id. */
  tokenAudiences: readonly string[] | undefined;
  #withheldUntilMs = 0;
  /** The end of tokens that may be issued, on both clocks; 0 = none may. */
  #tokensUntil: Instant = NEVER;
  readonly #clock: Clock;
  readonly #latestCheck = { monotonicMs: 0, wallMs: 0 };

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * The instant of the latest `holds`, for work that follows it in the same synchronous block: reading both clocks again
   * would take 0.3 µs.
   */
  get latestCheck(): Instant {
    return this.#latestCheck;
  }

  /** Returns true if an answer from memory is allowed at this instant. */
  holds(): boolean {
    const latestCheck = this.#latestCheck;
    latestCheck.monotonicMs = this.#clock.monotonicMs();
    latestCheck.wallMs = this.#clock.wallMs();
    return latestCheck.monotonicMs < this.#untilMonotonicMs && latestCheck.wallMs < this.#untilWallMs;
  }

  /** Extends the lease to `lengthMs` after the moment when the request was sent; never shortens it. */
  extend(sentAt: Instant, lengthMs: number): void {
    if (sentAt.monotonicMs + lengthMs <= this.#untilMonotonicMs) return;
    this.#untilMonotonicMs = sentAt.monotonicMs + lengthMs;
    this.#untilWallMs = sentAt.wallMs + lengthMs;
  }

  /**
   * Allows tokens up to the end of a lease of which Redis says that its API has tokens, if this machine's wall clock is right:
   * others compare the end of a token with theirs.
   * @param redisMs the clock of Redis between request and reply, Unix milliseconds; 0 = no tokens
   */
  allowTokens(sentAt: Instant, lengthMs: number, redisMs: number, audiences?: readonly string[]): void {
    this.hasTokens = redisMs > 0;
    this.tokenAudiences = audiences;
    const isRight = redisMs - sentAt.wallMs <= SKEW_MS && this.#clock.wallMs() - redisMs <= SKEW_MS;
    this.#tokensUntil =
      this.hasTokens && isRight
        ? { monotonicMs: sentAt.monotonicMs + lengthMs, wallMs: sentAt.wallMs + lengthMs }
        : NEVER;
  }

  /** Issues no tokens until then on the monotonic clock: a control plane says that changes are complete while tokens live. */
  withholdTokens(untilMs: number): void {
    this.#withheldUntilMs = untilMs;
  }

  get isWithheld(): boolean {
    return this.#clock.monotonicMs() < this.#withheldUntilMs;
  }

  /** False if this machine's wall clock may be wrong, while the API has tokens. */
  get isClockRight(): boolean {
    return this.#tokensUntil !== NEVER;
  }

  /** Returns the latest end of a token that is issued now, Unix milliseconds, or a time in the past if none may be. */
  tokenEndMs(): number {
    const { monotonicMs, wallMs } = this.isWithheld ? NEVER : this.#tokensUntil;
    const restMs = Math.min(monotonicMs - this.#clock.monotonicMs(), wallMs - this.#clock.wallMs());
    return this.#clock.wallMs() + restMs - 2 * SKEW_MS;
  }

  /** Sets this lease to end when the first of the two ends. Later changes of the two have no effect. */
  follow(first: Lease, second = first): void {
    this.#untilMonotonicMs = Math.min(first.#untilMonotonicMs, second.#untilMonotonicMs);
    this.#untilWallMs = Math.min(first.#untilWallMs, second.#untilWallMs);
  }

  /** Ends the lease now. */
  cut(): void {
    this.#untilMonotonicMs = 0;
    this.#untilWallMs = 0;
    this.#tokensUntil = NEVER;
  }

  /** Returns the time left by the monotonic clock, in milliseconds and at least 0. Only for metrics. */
  remainingMs(): number {
    return Math.max(0, this.#untilMonotonicMs - this.#clock.monotonicMs());
  }
}
