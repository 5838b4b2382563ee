import type { Clock } from '#shared/clock.ts';
import { ApiError, unavailable } from '#shared/errors.ts';
import { digestOf, isWellFormed, secretHashFrom } from '#shared/key-format.ts';
import { Deadlines } from '#shared/redis/deadlines.ts';
import type { VerdictCode } from '#shared/verdict-codes.ts';
import { ask, claimsOf, giveBack, hasPrice, spend } from './allowances/allowance.ts';
import { creditCounts } from './allowances/pools.ts';
import { ExpiryClock } from './expiry-clock.ts';
import { Follower } from './follower.ts';
import type { FollowerEvents, FollowerLimits } from './follower-events.ts';
import { type Entry, KeyCache, type Memory } from './key-cache.ts';
import { NegativeCache } from './negative-cache.ts';
import type { Question } from './question/question.ts';
import type { Directory, Pointer } from './redis-port.ts';
import { Semaphore } from './semaphore.ts';
import { SingleFlight } from './single-flight.ts';
import { type Decider, FORBIDDEN, judge, NOT_FOUND, type Verdict } from './verdict.ts';
import { Workspace } from './workspace.ts';

/** Counter of verdicts by key. */
interface VerdictCounter {
  count(entry: Entry, code: VerdictCode, tags?: readonly string[]): void;
}

/** A verifier's limits, each a setting of the process. */
export interface VerifierLimits extends FollowerLimits {
  readonly cacheKeysMax: number;
  readonly unknownKeysMax: number;
  /** Time for which an unknown key is remembered as such, milliseconds. */
  readonly unknownTtlMs: number;
  readonly lookupsInFlightMax: number;
  readonly lookupsQueuedMax: number;
  /** Longest wait of a request for its look-up, which then goes on without it, milliseconds. */
  readonly lookupWaitMs: number;
  readonly apisMax: number;
  readonly apiIdleMs: number;
}

/** A question that is looked up. */
interface Lookup {
  readonly digest: string;
  readonly question: Question;
}

/** Longest time in which holders of credits give back what others need, milliseconds; after that it is done without. */
export const RECALL_MS = 50;

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
export class Verifier implements Decider {
  readonly #directory: Directory;
  readonly #clock: Clock;
  readonly #newNonce: () => string;
  readonly #random: () => number;
  readonly #limits: VerifierLimits;
  /** Empty = all. */
  readonly #apiIds: ReadonlySet<string>;
  readonly #foreignKeys: boolean;
  readonly #events: (apiId: string) => FollowerEvents;
  readonly #usage: VerdictCounter | undefined;
  readonly #expiry: ExpiryClock;
  readonly #cache: KeyCache;
  readonly #unknown: NegativeCache;
  readonly #lookups: SingleFlight<Entry | Verdict, Lookup, Verdict>;
  readonly #slots: Semaphore;
  readonly #spending: Deadlines<(error: unknown) => void>;
  readonly #workspace: Workspace;
  readonly #followers = new Map<string, { follower: Follower; idleSinceMs: number }>();
  /**
   * The likely API of the next key that memory does not have: a follower finds and reads a key in one step at Redis.
   */
  #likely: Follower | undefined;
  #idleCheck: { cancel(): void } | undefined;
  #stopped = false;
  /** Monotone counts for metrics. */
  readonly counts = { fills: 0, malformed: 0, stale: 0, credits: creditCounts() };

  constructor(options: {
    directory: Directory;
    clock: Clock;
    newNonce: () => string;
    /** From 0 to below 1 at each call: jitter and backoff. */
    random?: () => number;
    limits: VerifierLimits;
    apiIds: readonly string[];
    /** True if keys of another format than ours may be looked up. */
    foreignKeys: boolean;
    events: (apiId: string) => FollowerEvents;
    /** Told every verdict on a known key; undefined = nobody counts them. */
    usage?: VerdictCounter | undefined;
  }) {
    const { limits, clock } = options;
    const tooSlow = () => new LookupGivenUp('slow', `no answer from Redis within ${limits.lookupWaitMs} ms`);
    this.#directory = options.directory;
    this.#clock = clock;
    this.#newNonce = options.newNonce;
    this.#random = options.random ?? Math.random;
    this.#limits = limits;
    this.#apiIds = new Set(options.apiIds);
    this.#foreignKeys = options.foreignKeys;
    this.#events = options.events;
    this.#usage = options.usage;
    this.#expiry = new ExpiryClock(clock);
    this.#cache = new KeyCache(limits.cacheKeysMax);
    this.#unknown = new NegativeCache(limits.unknownKeysMax, limits.unknownTtlMs, clock);
    this.#slots = new Semaphore(limits.lookupsInFlightMax, limits.lookupsQueuedMax);
    this.#lookups = new SingleFlight({
      clock,
      waitMs: limits.lookupWaitMs,
      read: (digest) => this.#fetch(digest),
      answer: (found, lookup) => this.#answer(found, lookup),
      tooSlow,
    });
    this.#workspace = new Workspace((apiId, memory) => this.#newFollower(apiId, memory), limits.cacheKeysMax);
    this.#spending = new Deadlines(clock, limits.lookupWaitMs + RECALL_MS, (fail) => fail(tooSlow()));
  }

  /** Begins to follow the APIs of `apiIds`; others are followed from their first key on. */
  start(): void {
    for (const apiId of this.#apiIds) this.#follow(apiId);
    this.#checkIdle();
  }

  /** Stops answering and leaves every API. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#idleCheck?.cancel();
    const leaving = [...this.#followers.values()].map(({ follower }) => follower.stop());
    await Promise.all([...leaving, this.#workspace.stop()]);
  }

  get followers(): Follower[] {
    return [...this.#followers.values()].map(({ follower }) => follower);
  }

  /** Follower of roles and identities; undefined = no key needed them yet. */
  get workspace(): Follower | undefined {
    return this.#workspace.follower;
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
      return this.#judge(entry, question);
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
    if (entry?.epoch.lease.holds() && hasPrice(entry, question.requirements) && this.#isKnown(entry))
      return this.#spend(lookup);
    return this.#lookups.ask(digest, lookup);
  }

  #answer(found: Entry | Verdict, lookup: Lookup): Verdict | Promise<Verdict> {
    if ('code' in found) return found;
    if (!found.epoch.current || !found.epoch.lease.holds() || !this.#isKnown(found))
      throw unavailable('not in sync with Redis');
    return this.#judge(found, lookup.question) ?? this.#spend(lookup);
  }

  /** Tells whether a key's roles and its owner's identity are in memory, and may be told of at this instant. */
  #isKnown(entry: Entry): boolean {
    return entry.ties === undefined || this.#workspace.join(entry, entry.ties) !== undefined;
  }

  /** undefined = the key is good, and whether it may be used so much must be asked; or memory lacks its roles or its owner's identity. */
  #judge(entry: Entry, question: Question): Verdict | undefined {
    const join = entry.ties && this.#workspace.join(entry, entry.ties);
    if (join === undefined && entry.ties !== undefined) return undefined;
    const grants = join?.grants;
    // Most keys never expire, and need no clock.
    const nowMs = entry.expires === 0 ? 0 : this.#expiry.nowMs();
    let verdict = judge(entry, question, nowMs, grants);
    if (question.isRecheck) return verdict;
    const { requirements, tags } = question;
    if (verdict.code === 'VALID' && hasPrice(entry, requirements)) {
      const claims = claimsOf(entry, requirements, grants);
      const spending = typeof claims === 'string' ? undefined : spend(claims, this.#clock.monotonicMs());
      if (spending === undefined) return undefined;
      verdict = { code: spending.code, entry, spending, grants };
    }
    this.#usage?.count(entry, verdict.code, tags);
    return verdict;
  }

  /**
   * The verdict once Redis has said how much the key may still be used. Everything is judged anew in the very block in which
   * that comes, so that nobody else has it first and nothing older than memory counts.
   */
  #spend(lookup: Lookup): Promise<Verdict> {
    const { digest, question } = lookup;
    return new Promise((resolve, reject) => {
      const deadline = this.#spending.begin(reject);
      let isOver = false;
      const end = (settle: () => void) => {
        isOver = true;
        this.#spending.end(deadline);
        settle();
      };
      const waiter = {
        get over() {
          return isOver || deadline.passed;
        },
        again: () => {
          if (waiter.over) return;
          const entry = this.#cache.get(digest);
          if (entry === undefined) return end(() => resolve(this.#lookups.ask(digest, lookup)));
          if (!entry.epoch.lease.holds()) return end(() => reject(unavailable('not in sync with Redis')));
          if (!this.#isKnown(entry)) return end(() => resolve(this.#lookups.ask(digest, lookup)));
          const verdict = this.#judge(entry, question);
          const grants = entry.ties && this.#workspace.join(entry, entry.ties)?.grants;
          const claims = claimsOf(entry, question.requirements, grants);
          if (typeof claims === 'string') {
            const unknown = new ApiError(
              'BAD_REQUEST',
              `ratelimits: the key has no limit named ${claims}, nor has its owner`,
            );
            return end(() => (verdict ? resolve(verdict) : reject(unknown)));
          }
          if (!verdict) return ask(claims, waiter, this.#clock.monotonicMs());
          if (verdict.code !== 'VALID') giveBack(claims);
          end(() => resolve(verdict));
        },
        fail: (error: unknown) => {
          if (!waiter.over) end(() => reject(error));
        },
      };
      waiter.again();
    });
  }

  async #fetch(digest: string): Promise<Entry | Verdict> {
    const slot = this.#slots.acquire();
    if (slot !== true && !(await slot)) throw new LookupGivenUp('shed', 'too many look-ups at once');
    try {
      this.counts.fills++;
      const former = this.#cache.former(digest);
      // Beside the look-up; what this does not learn is learnt after it.
      if (former?.ties) this.#workspace.learn(former, former.ties).catch(() => undefined);
      for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        const found = await this.#find(digest);
        if ('code' in found || found.ties === undefined || this.#isKnown(found)) return found;
        await this.#workspace.learn(found, found.ties);
        // What is out of memory by now no change would reach: it is found again.
        if (this.#cache.get(digest) === found && this.#isKnown(found)) return found;
      }
      throw unavailable('the roles of the key, or its owner, change faster than they can be read');
    } finally {
      this.#slots.release();
    }
  }

  async #find(digest: string): Promise<Entry | Verdict> {
    const start = this.#clock.monotonicMs();
    const secretHash = secretHashFrom(digest);
    let pointer: Pointer | undefined;
    if (this.#likely?.findsKeys) {
      const found = await this.#likely.fill({ secretHash });
      if (found === undefined || !('elsewhere' in found)) return found ?? this.#unlessLate(NOT_FOUND, start);
      pointer = found.elsewhere;
    } else {
      pointer = await this.#directory.find(secretHash);
    }
    const refusal = pointer === undefined ? NOT_FOUND : this.#serves(pointer.apiId) ? undefined : FORBIDDEN;
    if (pointer === undefined || refusal !== undefined) {
      // The next may be made up too, and to ask only where it lies is cheaper.
      this.#likely = undefined;
      this.#unknown.set(digest, refusal ?? NOT_FOUND, start);
      return this.#unlessLate(refusal ?? NOT_FOUND, start);
    }
    this.#likely = this.#follow(pointer.apiId);
    return (await this.#likely.fill(pointer)) ?? this.#unlessLate(NOT_FOUND, start);
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

  #serves(apiId: string): boolean {
    return this.#apiIds.size === 0 || this.#apiIds.has(apiId);
  }

  #follow(apiId: string): Follower {
    const known = this.#followers.get(apiId);
    if (known) return known.follower;
    if (this.#followers.size >= this.#limits.apisMax)
      throw unavailable('this verifier follows too many APIs');
    const follower = this.#newFollower(apiId, this.#cache);
    this.#likely ??= follower;
    this.#followers.set(apiId, { follower, idleSinceMs: this.#clock.monotonicMs() });
    return follower;
  }

  #newFollower(apiId: string, cache: Memory): Follower {
    if (this.#stopped) throw unavailable('shutting down');
    const follower = new Follower({
      apiId,
      directory: this.#directory,
      cache,
      clock: this.#clock,
      newNonce: this.#newNonce,
      random: this.#random,
      limits: this.#limits,
      events: this.#events(apiId),
      creditCounts: this.counts.credits,
    });
    void follower.run();
    return follower;
  }

  /** Leaves APIs that nobody asked for during `apiIdleMs`, where they were not configured. */
  #checkIdle(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const [apiId, followed] of this.#followers) {
      if (followed.follower.takeUsed()) followed.idleSinceMs = nowMs;
      if (this.#apiIds.has(apiId) || nowMs - followed.idleSinceMs < this.#limits.apiIdleMs) continue;
      this.#followers.delete(apiId);
      void followed.follower.stop();
    }
    this.#idleCheck = this.#clock.after(this.#limits.apiIdleMs / 10, () => this.#checkIdle());
  }
}
