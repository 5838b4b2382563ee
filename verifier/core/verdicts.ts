import type { Clock } from '#shared/process/clock.ts';
import type { Entry } from '#shared/protocol/follower/key-cache.ts';
import type { EffectivePermissions } from '#shared/protocol/follower/permissions.ts';
import type { SharedLog } from '#shared/protocol/follower/shared-log.ts';
import { ExpiryClock } from './expiry-clock.ts';
import type { Meter, Taker, VerdictCounter } from './ports.ts';
import { LOOK, type Question } from './question.ts';
import { NOT_FOUND, ruleOn, type Verdict } from './verdict.ts';

/** Decides on keys in memory, from the state of memory at that very instant. */
export class Verdicts {
  readonly #sharedLog: Pick<SharedLog, 'join'>;
  readonly #expiry: ExpiryClock;
  readonly #usage: VerdictCounter | undefined;
  readonly #meter: Meter;
  /** Counts since the start, for metrics. */
  readonly counts = { wrongAddresses: 0, wrongOrigins: 0 };

  /** @param usage counts every verdict; undefined = nothing counts them */
  constructor(
    sharedLog: Pick<SharedLog, 'join'>,
    clock: Clock,
    usage: VerdictCounter | undefined,
    meter: Meter,
  ) {
    this.#meter = meter;
    this.#sharedLog = sharedLog;
    this.#expiry = new ExpiryClock(clock);
    this.#usage = usage;
  }

  /** Returns true if a key's roles and identity are in memory and may be used at this instant. */
  isKnown(entry: Entry): boolean {
    return entry.links === undefined || this.#sharedLog.join(entry, entry.links) !== undefined;
  }

  /**
   * Returns the effective permissions of a key with roles or an identity; undefined = the key's own record is
   * enough, or memory lacks them.
   */
  effectivePermissionsOf(entry: Entry): EffectivePermissions | undefined {
    return entry.links && this.#sharedLog.join(entry, entry.links)?.effectivePermissions;
  }

  /**
   * Decides on a key, takes the cost of the request, and counts the verdict. A key of an API about which the
   * caller may not ask is unknown to the caller: NOT_FOUND, which is not counted. undefined = the caller must ask
   * Redis: memory lacks the key's credits or limits, its roles or its identity. Throws LookupGivenUp if too many holds are
   * open. Call it only in the synchronous block in which the lease of the entry's epoch was found to hold: that instant
   * is now.
   * @param taker takes the cost
   */
  decide(entry: Entry, question: Question, taker: Taker = this.#meter): Verdict | undefined {
    if (question.allowedApis?.has(entry.epoch.apiId) === false) return NOT_FOUND;
    const join = entry.links && this.#sharedLog.join(entry, entry.links);
    if (join === undefined && entry.links !== undefined) return undefined;
    const effectivePermissions = join?.effectivePermissions;
    // Most keys never expire and need no clock.
    const nowMs = entry.expires === 0 ? 0 : this.#expiry.nowMs();
    let verdict = ruleOn(entry, question, nowMs, effectivePermissions);
    if (question.isRecheck) return verdict;
    if (verdict.rule === 'address') this.counts.wrongAddresses++;
    else if (verdict.rule === 'origin') this.counts.wrongOrigins++;
    if (verdict.code === 'VALID' && this.#meter.applies(entry, question, effectivePermissions)) {
      const outcome = taker.take(entry, question, effectivePermissions);
      if (outcome === undefined) return undefined;
      verdict = outcome;
    }
    if (question.requirements !== LOOK) this.#usage?.count(entry, verdict.code, question.tags);
    return verdict;
  }
}
