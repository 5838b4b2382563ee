import { ApiError, unavailable } from '#shared/contract/errors.ts';
import { digestOf, isWellFormed, secretHashFrom } from '#shared/contract/key-format.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { isMetered } from './allowances/allowance.ts';
import { creditCounts } from './allowances/pools.ts';
import { type Lookup, Spender } from './allowances/spending.ts';
import type { Follower } from './following/follower.ts';
import { Followers, type FollowersLimits, type FollowersOptions } from './following/followers.ts';
import { SharedLog } from './following/shared-log.ts';
import { type Entry, KeyCache } from './key-cache.ts';
import { NegativeCache } from './negative-cache.ts';
import type { Question } from './question/question.ts';
import type { Directory, Pointer } from './redis-port.ts';
import { Semaphore } from './semaphore.ts';
import { SingleFlight } from './single-flight.ts';
import { FORBIDDEN, NOT_FOUND, type Verdict, type VerdictSource } from './verdict/verdict.ts';
import { type VerdictCounter, Verdicts } from './verdict/verdicts.ts';

/** A verifier's limits, each a setting of the process. */
export interface VerifierLimits extends FollowersLimits {
  readonly cacheKeysMax: number;
  readonly unknownKeysMax: number;
  /** Time for which an unknown key is remembered as such, milliseconds. */
  readonly unknownTtlMs: number;
  readonly lookupsInFlightMax: number;
  readonly lookupsQueuedMax: number;
  /** Longest wait of a request for its look-up, which then goes on without it, milliseconds. */
  readonly lookupWaitMs: number;
}

/** Dependencies and limits of a verifier. */
interface VerifierOptions extends FollowersOptions {
  readonly limits: VerifierLimits;
  /** True if keys of another format than ours may be looked up. */
  readonly foreignKeys: boolean;
  /** Told every verdict on a known key; undefined = nobody counts them. */
  readonly usage?: VerdictCounter | undefined;
}

/** Times that a key is found with roles that memory lacks, before its caller is told. */
const ATTEMPTS_MAX = 5;

/** A look-up given up for its number (`shed`) or its slowness (`slow`); clients see 503 with `Retry-After`. */
export class LookupGivenUp extends ApiError {
  readonly reason: 'shed' | 'slow';

  constructor(reason: 'shed' | 'slow', message: string) {
    super('SERVICE_UNAVAILABLE', message);
    this.reason = reason;
  }
}

/**
 * Answers "is this key good?" for the APIs it serves: from memory while their leases hold, else from Redis.
 * The rules of a verification, without HTTP.
 */
export class Verifier implements VerdictSource {
  readonly #directory: Directory;
  readonly #clock: Clock;
  readonly #limits: VerifierLimits;
  readonly #foreignKeys: boolean;
  readonly #cache: KeyCache;
  readonly #unknown: NegativeCache;
  readonly #lookups: SingleFlight<Entry | Verdict, Lookup, Verdict>;
  readonly #slots: Semaphore;
  readonly #followers: Followers;
  readonly #sharedLog: SharedLog;
  readonly #verdicts: Verdicts;
  readonly #spender: Spender;
  /** Monotone counts for metrics. */
  readonly counts = { fills: 0, malformed: 0, stale: 0, credits: creditCounts() };

  constructor(options: VerifierOptions) {
    const { limits, clock } = options;
    const tooSlow = () => new LookupGivenUp('slow', `no answer from Redis within ${limits.lookupWaitMs} ms`);
    this.#directory = options.directory;
    this.#clock = clock;
    this.#limits = limits;
    this.#foreignKeys = options.foreignKeys;
    this.#cache = new KeyCache(limits.cacheKeysMax);
    this.#unknown = new NegativeCache(limits.unknownKeysMax, limits.unknownTtlMs, clock);
    this.#slots = new Semaphore(limits.lookupsInFlightMax, limits.lookupsQueuedMax);
    this.#lookups = new SingleFlight({
      clock,
      waitMs: limits.lookupWaitMs,
      read: (digest) => this.#lookUpKey(digest),
      answer: (result, lookup) => this.#answer(result, lookup),
      tooSlow,
    });
    this.#followers = new Followers(options, this.#cache, this.counts.credits);
    const begin = this.#followers.begin.bind(this.#followers);
    this.#sharedLog = new SharedLog(begin, limits.cacheKeysMax);
    this.#verdicts = new Verdicts(this.#sharedLog, clock, options.usage);
    this.#spender = new Spender({
      ...{ cache: this.#cache, verdicts: this.#verdicts, clock, waitMs: limits.lookupWaitMs, tooSlow },
      lookUp: (lookup) => this.#lookups.lookUp(lookup.digest, lookup),
    });
  }

  /** Begins to follow the APIs of `apiIds`; others are followed from their first key on. */
  start(): void {
    this.#followers.start();
  }

  /** Stops answering and leaves every API. */
  async stop(): Promise<void> {
    await Promise.all([this.#followers.stop(), this.#sharedLog.stop()]);
  }

  get followers(): Follower[] {
    return this.#followers.all;
  }

  /** Follower of roles and identities; undefined = no key needed them yet. */
  get sharedLog(): Follower | undefined {
    return this.#sharedLog.follower;
  }

  get cache(): Pick<KeyCache, 'size' | 'evictions'> {
    return this.#cache;
  }

  get lookupsInFlight(): number {
    return this.#lookups.size;
  }

  /**
   * The verdict, if memory has it and may tell at this very instant: the clock and the entry are read in one
   * synchronous block. undefined = Redis must be asked (`lookUp`).
   */
  decide(question: Question): Verdict | undefined {
    const digest = digestOf(question.key);
    const entry = this.#cache.get(digest);
    if (entry !== undefined) {
      if (!entry.epoch.lease.holds()) {
        this.counts.stale++;
        return undefined;
      }
      entry.epoch.used = true;
      return this.#verdicts.judge(entry, question);
    }
    if (!this.#foreignKeys && !isWellFormed(question.key)) {
      this.counts.malformed++;
      return NOT_FOUND;
    }
    return this.#unknown.get(digest);
  }

  /**
   * The verdict by way of Redis; one look-up per key however many ask. Rejects with SERVICE_UNAVAILABLE when
   * none can be had within the wait; the look-up goes on and its result is remembered.
   */
  lookUp(question: Question): Promise<Verdict> {
    const digest = digestOf(question.key);
    const lookup = { digest, question };
    const entry = this.#cache.get(digest);
    // Only its credits, or what its rate limits still allow, are not here.
    if (
      entry?.epoch.lease.holds() &&
      isMetered(entry, question.requirements) &&
      this.#verdicts.isKnown(entry)
    )
      return this.#spender.verdict(lookup);
    return this.#lookups.lookUp(digest, lookup);
  }

  #answer(result: Entry | Verdict, lookup: Lookup): Verdict | Promise<Verdict> {
    if ('code' in result) return result;
    if (!result.epoch.current || !result.epoch.lease.holds() || !this.#verdicts.isKnown(result))
      throw unavailable('not in sync with Redis');
    return this.#verdicts.judge(result, lookup.question) ?? this.#spender.verdict(lookup);
  }

  async #lookUpKey(digest: string): Promise<Entry | Verdict> {
    const slot = this.#slots.acquire();
    if (slot !== true && !(await slot)) throw new LookupGivenUp('shed', 'too many look-ups at once');
    try {
      this.counts.fills++;
      const former = this.#cache.former(digest);
      // Beside the look-up; what this does not learn is learnt after it.
      if (former?.links) this.#sharedLog.learn(former, former.links).catch(() => undefined);
      for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        const result = await this.#lookUpOnce(digest);
        if ('code' in result || result.links === undefined || this.#verdicts.isKnown(result)) return result;
        await this.#sharedLog.learn(result, result.links);
        // What is out of memory by now no change would reach: it is found again.
        if (this.#cache.get(digest) === result && this.#verdicts.isKnown(result)) return result;
      }
      throw unavailable('the roles of the key, or its owner, change faster than they can be read');
    } finally {
      this.#slots.release();
    }
  }

  async #lookUpOnce(digest: string): Promise<Entry | Verdict> {
    const start = this.#clock.monotonicMs();
    const secretHash = secretHashFrom(digest);
    let pointer: Pointer | undefined;
    const { likely } = this.#followers;
    if (likely?.findsKeys) {
      const result = await likely.fill({ secretHash });
      if (result === undefined || !('elsewhere' in result))
        return result ?? this.#unlessLate(NOT_FOUND, start);
      pointer = result.elsewhere;
    } else {
      pointer = await this.#directory.lookUp(secretHash);
    }
    const refusal =
      pointer === undefined ? NOT_FOUND : this.#followers.serves(pointer.apiId) ? undefined : FORBIDDEN;
    if (pointer === undefined || refusal !== undefined) {
      // The next may be made up too, and to ask only where it lies is cheaper.
      this.#followers.likely = undefined;
      this.#unknown.set(digest, refusal ?? NOT_FOUND, start);
      return this.#unlessLate(refusal ?? NOT_FOUND, start);
    }
    const follower = this.#followers.follow(pointer.apiId);
    this.#followers.likely = follower;
    return (await follower.fill(pointer)) ?? this.#unlessLate(NOT_FOUND, start);
  }

  /**
   * Refuses to pass on a late reply about an unknown secret. If the reply was delayed, the key may exist by now: answer
   * 503, not NOT_FOUND.
   */
  #unlessLate(verdict: Verdict, sinceMs: number): Verdict {
    const { unknownTtlMs, lookupWaitMs } = this.#limits;
    if (this.#clock.monotonicMs() - sinceMs <= Math.max(unknownTtlMs, lookupWaitMs)) return verdict;
    throw new LookupGivenUp('slow', 'the answer from Redis came too late');
  }
}
