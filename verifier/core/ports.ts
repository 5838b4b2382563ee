import type { Clock } from '#shared/process/clock.ts';
import type { Entry } from '#shared/protocol/follower/key-cache.ts';
import type { EffectivePermissions } from '#shared/protocol/follower/permissions.ts';
import type { SharedLog } from '#shared/protocol/follower/shared-log.ts';
import type { VerdictCode } from '#shared/rules/verdict-codes.ts';
import type { Costs, Question } from './question.ts';
import type { Verdict } from './verdict.ts';

/** Takes what a good question costs. */
export interface Taker {
  /**
   * Takes all that the question costs, or nothing, and returns the verdict: VALID, or the code of what there is too little of.
   * undefined = the question must `wait`. Throws LookupGivenUp if too many holds are open. Call it only in the synchronous block
   * in which the lease of the entry's epoch was found to hold.
   */
  take(
    entry: Entry,
    question: Question,
    effectivePermissions: EffectivePermissions | undefined,
  ): Verdict | undefined;
}

/** Counts what keys have left. The rules come first: only a question that they accept takes anything. */
export interface Meter extends Taker {
  /** Returns true if a good question about this key must be taken for: it has credits or limits, or work holds something. */
  applies(entry: Entry, question: Question, effectivePermissions: EffectivePermissions | undefined): boolean;
  /**
   * Resolves with the verdict of `decide` once what the question needs has come. Each time that there is news, calls `decide`
   * in the same synchronous block as the news, so that no other question takes it first, and only what is in memory then counts.
   * Gives back what came for a question that is then refused. Rejects with SERVICE_UNAVAILABLE if it takes too long.
   * @param decide returns the verdict, taken with this taker; undefined = it took nothing, and waits
   */
  wait(decide: (taker: Taker) => Verdict | Promise<Verdict> | undefined): Promise<Verdict>;
}

/** The verifier's side of a meter. */
export interface MeterHost {
  readonly verifierId: string;
  readonly clock: Clock;
  /** Longest wait of a question for Redis, in milliseconds. */
  readonly waitMs: number;
  readonly tooSlow: () => Error;
  readonly sharedLog: Pick<SharedLog, 'overridesOf' | 'readRecord'>;
  /** Returns the place of a key in memory. */
  placeOf(key: string): string;
  /** Returns the key at a place with its roles and identity; undefined = memory lacks any of them. Does not check the lease. */
  at(
    place: string,
  ): { readonly entry: Entry; readonly effectivePermissions: EffectivePermissions | undefined } | undefined;
}

/** Adds to good verdicts what says so to others, such as a token. */
export interface Stamp {
  /** The header in which gateways and proxy mode pass it on. They always send it; it is empty if there is no stamp. */
  readonly header: string;
  /** Returns true if verdicts on this key have the stamp. */
  applies(verdict: Verdict): boolean;
  /**
   * Returns the stamp; `''` = there is none now.
   * @param now a verdict on the key that was decided in this synchronous block; undefined = memory has none
   */
  value(now: Verdict | undefined): string;
}

/** The result of a look-up: a key, which is in memory now, or the verdict on a secret without a key for which this verifier answers. */
export type LookedUp =
  | { readonly kind: 'key'; readonly entry: Entry }
  | { readonly kind: 'unknown'; readonly verdict: Verdict };

/** Knows secrets that memory lacks. A verifier asks its sources in their order, until one can tell. */
export interface Source {
  /**
   * Resolves with what the source knows of a secret; undefined = it cannot tell. Rejects with SERVICE_UNAVAILABLE.
   * @param digests the digest of the secret, then its names by other digests
   */
  lookUp(digests: readonly string[]): Promise<LookedUp | undefined>;
}

/** The cost of a hold that ended. */
export interface Release {
  /** Credits; 0 for a key with unlimited credits. */
  readonly charged: number;
  /** The part of the cost that was not there; undefined = none. */
  readonly short?: number | undefined;
  /** Credits left; undefined = unlimited, or unknown. */
  readonly remaining?: number | undefined;
  /** The same of each rate limit that the hold reserved; undefined = of none. */
  readonly ratelimits?: readonly LimitRelease[] | undefined;
}

/** The part of a release about one rate limit. */
export interface LimitRelease {
  readonly name: string;
  /** Within the reservation it counts in the window of the reservation, beyond it in the present one. */
  readonly charged: number;
  readonly short?: number;
  /** The part that the work did not need and nobody can use, because its window is over; undefined = none. */
  readonly lost?: number;
  /** undefined = unknown. */
  readonly remaining?: number;
}

/** Ends holds. */
export interface HoldEnder {
  /**
   * Ends a hold, and charges the costs instead of what was reserved. Frees its places. The same call again gets the same
   * answer for a minute. Throws HOLD_UNKNOWN, or BAD_REQUEST for the cost of a limit that the hold does not reserve;
   * rejects with SERVICE_UNAVAILABLE if a higher cost needs Redis and there is no answer: the hold then goes on.
   * @param allowedApis the APIs about whose keys the caller may learn anything; undefined = all
   */
  release(id: string, costs?: Costs, allowedApis?: ReadonlySet<string>): Release | Promise<Release>;
}

/** A request that was refused. */
export interface RefusedRequest {
  /** As the answer has it; `''` = it has none. */
  readonly requestId: string;
  /** Method and path of the client's request, without the query; undefined = unknown. */
  readonly route?: string | undefined;
}

/** Remembers refusals, for people who ask why. */
export interface RefusalLog {
  /** Notes the verdict on a question, if it refuses a known key. */
  note(verdict: Verdict, question: Question, request: RefusedRequest): void;
}

/** Counts verdicts by key. */
export interface VerdictCounter {
  count(entry: Entry, code: VerdictCode, tags?: readonly string[]): void;
}
