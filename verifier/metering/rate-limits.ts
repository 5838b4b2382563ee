import { hash } from 'node:crypto';
import type { Waiter } from '#shared/metering/demand.ts';
import { RECALL_MS } from '#shared/metering/exchange.ts';
import { poolsOf } from '#shared/metering/pools.ts';
import type { Clock } from '#shared/process/clock.ts';
import { instant } from '#shared/process/clock.ts';
import { Deadlines } from '#shared/process/deadlines.ts';
import type { Companion } from '#shared/protocol/follower/companion.ts';
import { namespaceIdOf, type Override } from '#shared/protocol/records/namespace-record.ts';
import type { MeterHost } from '../core/ports.ts';
import { untilServed } from './until-served.ts';

/** A question about a rate limit that belongs to no key. */
interface RateLimitQuestion {
  readonly namespace: string;
  readonly identifier: string;
  readonly limit: number;
  /** Length of the windows, in milliseconds. */
  readonly duration: number;
  /** 0 = take nothing, only look. */
  readonly cost: number;
}

/** The answer to a question about a rate limit. */
export interface RateLimitAnswer {
  readonly passed: boolean;
  /** The limit that applied: that of the override, if there is one. */
  readonly limit: number;
  readonly remaining: number;
  /** End of the current window, in Unix milliseconds. */
  readonly reset: number;
  readonly overrideId: string | undefined;
}

/** The part of a verifier that answers about rate limits. */
export type RateLimiter = Pick<RateLimits, 'check'>;

/** Rate limits that belong to no key. They are taken from pools like the limits of keys. */
export class RateLimits {
  readonly #sharedLog: MeterHost['sharedLog'];
  readonly #clock: Clock;
  readonly #deadlines: Deadlines<(error: unknown) => void>;
  /** Counts since the start, for metrics. */
  readonly counts = { passed: 0, refused: 0 };

  /** @param host.waitMs longest wait for Redis, in milliseconds. RECALL_MS is added to it. */
  constructor(host: Pick<MeterHost, 'sharedLog' | 'clock' | 'waitMs' | 'tooSlow'>) {
    const { sharedLog, clock, waitMs, tooSlow } = host;
    this.#sharedLog = sharedLog;
    this.#clock = clock;
    this.#deadlines = new Deadlines(clock, waitMs + RECALL_MS, (fail) => fail(tooSlow()));
  }

  /**
   * Takes the cost if it fits. All verifiers together let at most the limit pass in a window. Rejects with
   * SERVICE_UNAVAILABLE if Redis does not answer in time; then nothing is taken.
   */
  check(question: RateLimitQuestion): Promise<RateLimitAnswer> {
    return untilServed(this.#deadlines, (waiter) => {
      const id = namespaceIdOf(question.namespace);
      const namespace = this.#sharedLog.overridesOf(id);
      if (namespace === undefined) {
        this.#sharedLog.readRecord(id).then(waiter.again, waiter.fail);
        return undefined;
      }
      const override = namespace.overrides?.of(question.identifier);
      const { limit, duration } = override ?? question;
      const answer =
        limit === 0
          ? this.#closed(duration, override)
          : this.#take(question, { limit, duration }, namespace, waiter, override);
      return answer && this.#count(answer);
    });
  }

  /** Takes the cost if it fits; undefined = the waiter is called when Redis has answered. */
  #take(
    { namespace, identifier, cost }: RateLimitQuestion,
    { limit, duration }: Pick<Override, 'limit' | 'duration'>,
    { companion, obeyedAtMs }: { readonly companion: Companion; readonly obeyedAtMs: number },
    waiter: Waiter,
    override: Override | undefined,
  ): RateLimitAnswer | undefined {
    const id = poolIdOf(namespace, identifier, duration);
    const pool = poolsOf(companion).get(id, { limit, durationMs: duration, isExact: false }, obeyedAtMs);
    const now = instant(this.#clock);
    const outlook = pool.look(cost, now, limit);
    if (outlook === undefined) {
      pool.ask(waiter, cost, limit);
      return undefined;
    }
    const passed = outlook === 'enough';
    if (passed) pool.take(cost, now.monotonicMs);
    const remaining = Math.min(pool.remaining(limit), limit);
    return { passed, limit, remaining, reset: pool.resetMs(now.monotonicMs), overrideId: override?.id };
  }

  /** The answer where an override lets nothing pass. */
  #closed(duration: number, override: Override | undefined): RateLimitAnswer {
    const reset = (Math.floor(this.#clock.wallMs() / duration) + 1) * duration;
    return { passed: false, limit: 0, remaining: 0, reset, overrideId: override?.id };
  }

  #count(answer: RateLimitAnswer): RateLimitAnswer {
    this.counts[answer.passed ? 'passed' : 'refused']++;
    return answer;
  }
}

/**
 * The name of the pool of an identifier. It has a fixed length, because Redis keeps a pool for each identifier
 * until the window after the current one ends. The limit is no part of it: whoever raises or lowers a limit goes
 * on with the same count.
 */
const poolIdOf = (namespace: string, identifier: string, duration: number): string =>
  `${hash('sha256', `${namespace.length} ${namespace}${identifier}`, 'base64url').slice(0, 22)}.${duration}`;
