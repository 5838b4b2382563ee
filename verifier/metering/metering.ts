import { RECALL_MS } from '#shared/metering/exchange.ts';
import type { Pool } from '#shared/metering/pool.ts';
import { type CreditCounts, creditCounts, type PoolsOptions, withPools } from '#shared/metering/pools.ts';
import { Deadlines } from '#shared/process/deadlines.ts';
import type { Entry } from '#shared/protocol/follower/key-cache.ts';
import type { EffectivePermissions } from '#shared/protocol/follower/permissions.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import type { Meter, MeterHost, Taker } from '../core/ports.ts';
import { DEFAULT_REQUIREMENTS, type Question } from '../core/question.ts';
import type { Verdict } from '../core/verdict.ts';
import { ask, giveBack, type Need, spend } from './allowance.ts';
import { Holds } from './holds.ts';
import { atLeast, type Choose, hasHeld, isMetered, needsOf } from './needs.ts';
import { RateLimits } from './rate-limits.ts';
import { untilServed } from './until-served.ts';

/** Returns the options of a verifier whose keys have credits and limits. */
export const metered = (options: Omit<PoolsOptions, 'counts'>) => {
  const counts = creditCounts();
  return {
    companion: withPools({ ...options, counts }),
    meter: (host: MeterHost) => new Metering(host, counts),
  };
};

/** Takes credits, uses of rate limits, and places from the pools of the followers. */
export class Metering implements Meter {
  readonly #host: MeterHost;
  readonly #deadlines: Deadlines<(error: unknown) => void>;
  /** The accepted questions whose work has not ended. */
  readonly holds: Holds;
  /** Rate limits that belong to no key. */
  readonly rateLimits: RateLimits;

  /** Counts since the start, for metrics. */
  readonly counts: CreditCounts;

  constructor(host: MeterHost, counts: CreditCounts) {
    this.counts = counts;
    const { clock, waitMs, tooSlow } = host;
    this.#host = host;
    this.#deadlines = new Deadlines(clock, waitMs + RECALL_MS, (fail) => fail(tooSlow()));
    this.rateLimits = new RateLimits(host);
    this.holds = new Holds(host, (digest, name) => this.#needNow(digest, name));
  }

  applies(
    entry: Entry,
    { requirements, hold }: Question,
    effectivePermissions: EffectivePermissions | undefined,
  ): boolean {
    // A hold that depends on what the key has needs no more than the key itself.
    return (
      isMetered(entry, requirements, effectivePermissions) ||
      (hold !== undefined && hold.onlyWith === undefined)
    );
  }

  take(
    entry: Entry,
    question: Question,
    effectivePermissions: EffectivePermissions | undefined,
  ): Verdict | undefined {
    const needs = needsOf(entry, question, effectivePermissions);
    // Whoever waits hears of the limit that nobody has.
    return typeof needs === 'string' ? undefined : this.#take(needs, entry, question, effectivePermissions);
  }

  #take(
    needs: readonly Need[],
    entry: Entry,
    question: Question,
    effectivePermissions: EffectivePermissions | undefined,
  ): Verdict | undefined {
    const { hold } = question;
    const holds = hold && hasHeld(needs, hold);
    const checkRoom = holds ? () => this.holds.checkRoom(entry.keyId) : undefined;
    const spending = spend(needs, entry.epoch.lease.latestCheck, checkRoom);
    if (spending === undefined) return undefined;
    const verdict: Verdict = { code: spending.code, entry, spending, effectivePermissions };
    return holds && spending.code === 'VALID'
      ? { ...verdict, hold: this.holds.begin(entry, question, needs, hold) }
      : verdict;
  }

  wait(decide: (taker: Taker) => Verdict | Promise<Verdict> | undefined): Promise<Verdict> {
    const lookUp = new LookUp();
    return untilServed(this.#deadlines, (waiter) => {
      const verdict = decide({
        take: (entry, question, effectivePermissions) => {
          const needs = lookUp.needsOf(entry, question, effectivePermissions);
          const outcome = this.#take(needs, entry, question, effectivePermissions);
          if (outcome === undefined) ask(needs, waiter, entry.epoch.lease.latestCheck);
          return outcome;
        },
      });
      if (verdict && 'code' in verdict && verdict.code !== 'VALID') giveBack(lookUp.needs);
      return verdict;
    });
  }

  /**
   * Returns what a key that was accepted needs now of a rate limit; undefined = memory has neither the key nor the limit
   * any more.
   */
  #needNow(digest: string, name: string): Need | undefined {
    const key = this.#host.at(digest);
    if (key === undefined) return undefined;
    const { entry, effectivePermissions } = key;
    if (!entry.epoch.lease.holds()) throw unavailable('not in sync with Redis');
    const requirements = { ...DEFAULT_REQUIREMENTS, limits: [{ name, cost: 0 }] };
    const needs = needsOf(entry, { requirements, hold: undefined }, effectivePermissions);
    return typeof needs === 'string' ? undefined : needs.find(({ limit }) => limit?.name === name);
  }
}

/** A question that waits: the needs of its latest attempt, and what it chose where its hold takes less. */
class LookUp {
  needs: readonly Need[] = [];
  readonly #choices = new Map<Pool, Need>();

  /** Throws BAD_REQUEST if the question names a limit that neither the key nor its identity or roles have. */
  needsOf(
    entry: Entry,
    question: Question,
    effectivePermissions: EffectivePermissions | undefined,
  ): readonly Need[] {
    const needs = needsOf(entry, question, effectivePermissions, this.#choose);
    if (typeof needs === 'string')
      throw new ApiError(
        'BAD_REQUEST',
        `ratelimits: neither the key nor its identity or roles have a limit named ${needs}`,
      );
    this.needs = needs;
    return needs;
  }

  /** Goes on from the amount of the attempt before: another would be asked for without end. */
  readonly #choose: Choose = (need, now) => {
    const { cost, lowered } = this.#choices.get(need.pool) ?? need;
    const choice = atLeast(lowered === undefined ? need : { ...need, cost, lowered }, now);
    this.#choices.set(need.pool, choice);
    return choice;
  };
}
