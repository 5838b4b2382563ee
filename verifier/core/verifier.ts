import type { Clock } from '#shared/process/clock.ts';
import type { Follower } from '#shared/protocol/follower/follower.ts';
import {
  Followers,
  type FollowersLimits,
  type FollowersOptions,
} from '#shared/protocol/follower/followers.ts';
import { KeyCache } from '#shared/protocol/follower/key-cache.ts';
import { SharedLog } from '#shared/protocol/follower/shared-log.ts';
import { unavailable } from '#shared/rules/errors.ts';
import { sourceOf } from '#shared/rules/ip-ranges.ts';
import { canBeSecret, digestOf, generateId, isWellFormed } from '#shared/rules/key-format.ts';
import { Callers } from './callers.ts';
import { LookupGivenUp } from './given-up.ts';
import { GoodSecrets, LookupSlots, NegativeCache, SingleFlight } from './look-ups.ts';
import type { LookedUp, Meter, MeterHost, Source, VerdictCounter } from './ports.ts';
import type { Question } from './question.ts';
import { PrimarySource, ReplicaSource } from './sources.ts';
import { NOT_FOUND, type Verdict, type VerdictSource } from './verdict.ts';
import { Verdicts } from './verdicts.ts';

/** The limits of a verifier. Each is a setting of the process. */
export interface VerifierLimits extends FollowersLimits {
  readonly cacheKeysMax: number;
  readonly unknownKeysMax: number;
  /** Time for which an unknown key is remembered as such, in milliseconds. */
  readonly unknownTtlMs: number;
  readonly lookupsInFlightMax: number;
  readonly lookupsQueuedMax: number;
  /** Longest wait of a request for its look-up, in milliseconds. The look-up goes on without the request. */
  readonly lookupWaitMs: number;
}

/** Dependencies and limits of a verifier. */
interface VerifierOptions<M extends Meter> extends FollowersOptions {
  readonly limits: VerifierLimits;
  /** Makes what counts what keys have left. */
  readonly meter: (host: MeterHost) => M;
  /** True = keys in another format than Keyfence's are looked up too. */
  readonly foreignKeys: boolean;
  /** Names a secret by its other digests, by which a key of foreign format may have been imported; undefined = by none. */
  readonly digestNames?: (secret: string) => readonly string[];
  /** Counts every verdict on a known key; undefined = nothing counts them. */
  readonly usage?: VerdictCounter | undefined;
}

/** A question that is looked up. */
interface Lookup {
  readonly digest: string;
  readonly question: Question;
  /** When it was asked, by the monotonic clock. */
  readonly sinceMs: number;
}

/** Maximum number of times that a look-up reads a key whose roles are not in memory. */
const ATTEMPTS_MAX = 5;

/**
 * A verifier of keys for the APIs that it follows. It answers from memory while their leases hold, otherwise
 * through Redis. Contains the rules of a verification, without HTTP.
 */
export class Verifier<M extends Meter = Meter> implements VerdictSource {
  /** Its id in the fleet's list, and part of the id of each hold. */
  readonly id: string;
  readonly #sources: readonly Source[];
  readonly #clock: Clock;
  readonly #limits: VerifierLimits;
  readonly #foreignKeys: boolean;
  readonly #digestNames: VerifierOptions<M>['digestNames'];
  readonly #cache: KeyCache;
  readonly #unknown: NegativeCache;
  readonly #lookups: SingleFlight<LookedUp, Lookup, Verdict>;
  readonly #slots: LookupSlots;
  readonly #good = new GoodSecrets();
  readonly #followers: Followers;
  readonly #sharedLog: SharedLog;
  readonly #verdicts: Verdicts;
  readonly #tooSlow: () => Error;
  /** Counts what keys have left. */
  readonly meter: M;
  /** Those who may ask, if they need a root key. */
  readonly callers: Callers;
  /** Counts since the start, for metrics. */
  readonly counts = { fills: 0, nearby: 0, malformed: 0, stale: 0 };

  constructor(options: VerifierOptions<M>) {
    const { limits, clock } = options;
    const { lookupWaitMs } = limits;
    const tooSlow = () =>
      options.directory.silentMs < lookupWaitMs
        ? new LookupGivenUp('slow', `Redis answers, but not this within ${lookupWaitMs} ms`)
        : new LookupGivenUp('silent', `Redis has answered nothing for ${lookupWaitMs} ms`);
    this.id = generateId('verifier', clock.wallMs());
    this.#clock = clock;
    this.#tooSlow = tooSlow;
    this.#limits = limits;
    this.#foreignKeys = options.foreignKeys;
    this.#digestNames = options.digestNames;
    this.#cache = new KeyCache(limits.cacheKeysMax, (externalId, obeyedAtMs) =>
      this.#sharedLog.notePlan(externalId, obeyedAtMs),
    );
    this.#unknown = new NegativeCache(limits.unknownKeysMax, limits.unknownTtlMs, clock);
    this.#slots = new LookupSlots(limits.lookupsInFlightMax, limits.lookupsQueuedMax);
    this.#lookups = new SingleFlight({
      clock,
      waitMs: limits.lookupWaitMs,
      read: (_digest, { question }) => this.#lookUpKey(question),
      answer: (result, lookup) => this.#answer(result, lookup),
      tooSlow,
    });
    this.#followers = new Followers(options, this.#cache);
    const { directory } = options;
    this.#sources = [
      ...(directory.nearby ? [new ReplicaSource(directory.nearby, this.#followers, this.counts)] : []),
      new PrimarySource({
        ...{ directory, followers: this.#followers, unknown: this.#unknown, clock },
        lateMs: Math.max(limits.unknownTtlMs, lookupWaitMs),
      }),
    ];
    const begin = this.#followers.begin.bind(this.#followers);
    this.#sharedLog = new SharedLog(begin, limits.cacheKeysMax);
    const waiting = { sharedLog: this.#sharedLog, clock, waitMs: lookupWaitMs, tooSlow };
    this.callers = new Callers(waiting);
    this.meter = options.meter({
      ...waiting,
      verifierId: this.id,
      placeOf: (key) => this.#placeOf(key),
      at: (place) => this.#at(place),
    });
    this.#verdicts = new Verdicts(this.#sharedLog, clock, options.usage, this.meter);
  }

  /**
   * Starts to follow the APIs of `apiIds`. Other APIs are followed from the first look-up of one of their
   * keys.
   */
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

  /** The follower of roles and identities; undefined = no key needed them yet. */
  get sharedLog(): Follower | undefined {
    return this.#sharedLog.follower;
  }

  get cache(): Pick<KeyCache, 'size' | 'evictions'> {
    return this.#cache;
  }

  /** Number of verdicts that refused a key because of the client's address. */
  get wrongAddresses(): number {
    return this.#verdicts.counts.wrongAddresses;
  }

  get wrongOrigins(): number {
    return this.#verdicts.counts.wrongOrigins;
  }

  get lookupsInFlight(): number {
    return this.#lookups.size;
  }

  /**
   * Returns the verdict if memory has it and may answer at this very instant: clock and entry are read in one
   * synchronous block. undefined = the caller must ask Redis (`lookUp`).
   */
  decide(question: Question): Verdict | undefined {
    const digest = digestOf(question.key);
    let entry = this.#cache.get(digest);
    if (entry === undefined) {
      if (!(this.#foreignKeys ? canBeSecret : isWellFormed)(question.key)) {
        this.counts.malformed++;
        return NOT_FOUND;
      }
      const unknown = this.#unknown.get(digest);
      if (unknown !== undefined || this.#digestNames === undefined) return unknownTo(question, unknown);
      entry = this.#cache.get(this.#placeOf(question.key));
      if (entry === undefined) return undefined;
    }
    if (!entry.epoch.lease.holds()) {
      this.counts.stale++;
      return undefined;
    }
    entry.epoch.used = true;
    try {
      return this.#verdicts.decide(entry, question);
    } catch (error) {
      // `lookUp` says so, too.
      if (error instanceof LookupGivenUp) return undefined;
      throw error;
    }
  }

  /** Returns the digest of a secret, and its names by other digests if it is of a foreign format. */
  #digestsOf(secret: string): readonly string[] {
    const digest = digestOf(secret);
    if (this.#digestNames === undefined || isWellFormed(secret) || !canBeSecret(secret)) return [digest];
    return [digest, ...this.#digestNames(secret)];
  }

  /** Returns the digest or name under which memory has a secret; its digest if memory does not have it. */
  #placeOf(secret: string): string {
    const digests = this.#digestsOf(secret);
    return digests.find((digest) => this.#cache.get(digest) !== undefined) ?? (digests[0] as string);
  }

  #at(place: string): ReturnType<MeterHost['at']> {
    const entry = this.#cache.get(place);
    if (entry === undefined || !this.#verdicts.isKnown(entry)) return undefined;
    return { entry, effectivePermissions: this.#verdicts.effectivePermissionsOf(entry) };
  }

  /**
   * Resolves with the verdict through Redis. There is one look-up per key, however many callers ask. Rejects
   * with SERVICE_UNAVAILABLE if there is no verdict within the wait; the look-up then goes on, and its result
   * is remembered.
   */
  lookUp(question: Question): Promise<Verdict> {
    return this.#lookUp(question, this.#clock.monotonicMs());
  }

  #lookUp(question: Question, sinceMs: number): Promise<Verdict> {
    const digest = this.#placeOf(question.key);
    const lookup = { digest, question, sinceMs };
    const entry = this.#cache.get(digest);
    // Memory has the key, and lacks only its credits or the rest of its rate limits.
    if (
      entry?.epoch.lease.holds() &&
      this.#verdicts.isKnown(entry) &&
      this.meter.applies(entry, question, this.#verdicts.effectivePermissionsOf(entry))
    )
      return this.#whenServed(lookup);
    return this.#lookups.lookUp(digest, lookup);
  }

  /** Resolves with the verdict on a key in memory once what it lacks has come. Decides everything anew then. */
  #whenServed(lookup: Lookup): Promise<Verdict> {
    return this.meter.wait((taker) => {
      const entry = this.#cache.get(lookup.digest);
      if (entry === undefined) return this.#lookUpAgain(lookup);
      if (!entry.epoch.lease.holds()) throw unavailable('not in sync with Redis');
      if (!this.#verdicts.isKnown(entry)) return this.#lookUpAgain(lookup);
      return this.#verdicts.decide(entry, lookup.question, taker);
    });
  }

  /** More keys than memory has room for would else push each other out for ever, each time before their credits come. */
  #lookUpAgain(lookup: Lookup): Promise<Verdict> {
    if (this.#clock.monotonicMs() - lookup.sinceMs > this.#limits.lookupWaitMs) throw this.#tooSlow();
    return this.#lookups.lookUp(lookup.digest, lookup);
  }

  #answer(result: LookedUp, { question, sinceMs }: Lookup): Verdict | Promise<Verdict> {
    if (result.kind === 'unknown') return unknownTo(question, result.verdict);
    const { entry } = result;
    if (!entry.epoch.current || !entry.epoch.lease.holds() || !this.#verdicts.isKnown(entry))
      throw unavailable('not in sync with Redis');
    // Now that memory has the key, it lacks only its credits or the rest of its rate limits.
    return this.#verdicts.decide(entry, question) ?? this.#lookUp(question, sinceMs);
  }

  async #lookUpKey(question: Question): Promise<LookedUp> {
    const digests = this.#digestsOf(question.key);
    const [digest = ''] = digests;
    const former = digests.map((each) => this.#cache.former(each)).find(Boolean);
    const { clientIp } = question.presenter;
    const slot = this.#slots.acquire(
      clientIp === undefined ? '' : sourceOf(clientIp),
      former !== undefined || this.#good.has(digest),
    );
    if (slot !== true && !(await slot)) throw new LookupGivenUp('shed', 'too many look-ups at once');
    try {
      this.counts.fills++;
      // Runs beside the look-up. `learn` below reads anything that is still missing.
      if (former?.links) this.#sharedLog.learn(former, former.links).catch(() => undefined);
      for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        let result: LookedUp | undefined;
        for (const source of this.#sources) {
          result = await source.lookUp(digests);
          if (result !== undefined) break;
        }
        if (result === undefined) throw unavailable('nobody knows the key');
        if (result.kind === 'unknown') return result;
        const { entry } = result;
        this.#good.add(digest, this.#slots.isBusy);
        if (entry.links === undefined || this.#verdicts.isKnown(entry)) return result;
        await this.#sharedLog.learn(entry, entry.links);
        // No change would reach an entry that has left memory since, so the key is looked up again.
        const isKept = digests.some((each) => this.#cache.get(each) === entry);
        if (isKept && this.#verdicts.isKnown(entry)) return result;
      }
      throw unavailable('the roles of the key, or its owner, change faster than they can be read');
    } finally {
      this.#slots.release();
    }
  }
}

/**
 * Returns what a caller may learn where memory has no key. FORBIDDEN says that the key exists in an API that this
 * verifier does not answer for; a caller who may not ask about every API does not learn that.
 */
const unknownTo = <T extends Verdict | undefined>({ allowedApis }: Question, verdict: T) =>
  allowedApis !== undefined && verdict?.code === 'FORBIDDEN' ? NOT_FOUND : verdict;
