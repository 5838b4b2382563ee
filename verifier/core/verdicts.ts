import type { VerdictCode } from '#shared/contract/verdict-codes.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { isMetered, needsOf, spend } from './allowance.ts';
import type { EffectivePermissions } from './effective-permissions.ts';
import { ExpiryClock } from './expiry-clock.ts';
import type { Entry } from './key-cache.ts';
import type { Question } from './question.ts';
import type { SharedLog } from './shared-log.ts';
import { decide, NOT_FOUND, type Verdict } from './verdict.ts';

/** A counter of verdicts by key. */
export interface VerdictCounter {
  count(entry: Entry, code: VerdictCode, tags?: readonly string[]): void;
}

/** Decides on keys in memory, from the state of memory at that very instant. */
export class Verdicts {
  readonly #sharedLog: Pick<SharedLog, 'join'>;
  readonly #expiry: ExpiryClock;
  readonly #usage: VerdictCounter | undefined;
  /** Counts since the start, for metrics. */
  readonly counts = { wrongAddresses: 0 };

  /** @param usage counts every verdict; undefined = nothing counts them */
  constructor(sharedLog: Pick<SharedLog, 'join'>, clock: Clock, usage: VerdictCounter | undefined) {
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
   * Redis: memory lacks the key's credits or limits, its roles or its identity. Call it only in the synchronous block
   * in which the lease of the entry's epoch was found to hold: that instant is now.
   */
  judge(entry: Entry, question: Question): Verdict | undefined {
    if (question.allowedApis?.has(entry.epoch.apiId) === false) return NOT_FOUND;
    const join = entry.links && this.#sharedLog.join(entry, entry.links);
    if (join === undefined && entry.links !== undefined) return undefined;
    const effectivePermissions = join?.effectivePermissions;
    // Most keys never expire and need no clock.
    const nowMs = entry.expires === 0 ? 0 : this.#expiry.nowMs();
    let verdict = decide(entry, question, nowMs, effectivePermissions);
    if (question.isRecheck) return verdict;
    if (verdict.isByAddress) this.counts.wrongAddresses++;
    const { requirements, tags } = question;
    if (verdict.code === 'VALID' && isMetered(entry, requirements, effectivePermissions)) {
      const needs = needsOf(entry, requirements, effectivePermissions);
      const spending = typeof needs === 'string' ? undefined : spend(needs, entry.epoch.lease.latestCheck);
      if (spending === undefined) return undefined;
      verdict = { code: spending.code, entry, spending, effectivePermissions };
    }
    this.#usage?.count(entry, verdict.code, tags);
    return verdict;
  }
}
