import type { VerdictCode } from '#shared/contract/verdict-codes.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { isMetered, needsOf, spend } from '../allowances/allowance.ts';
import type { EffectivePermissions } from '../effective-permissions.ts';
import { ExpiryClock } from '../expiry-clock.ts';
import type { SharedLog } from '../following/shared-log.ts';
import type { Entry } from '../key-cache.ts';
import type { Question } from '../question/question.ts';
import { judge, type Verdict } from './verdict.ts';

/** Counter of verdicts by key. */
export interface VerdictCounter {
  count(entry: Entry, code: VerdictCode, tags?: readonly string[]): void;
}

/** Verdicts on keys that are in memory, by all that memory has of them at this very instant. */
export class Verdicts {
  readonly #sharedLog: Pick<SharedLog, 'join'>;
  readonly #clock: Clock;
  readonly #expiry: ExpiryClock;
  readonly #usage: VerdictCounter | undefined;

  /** @param usage told every verdict; undefined = nobody counts them */
  constructor(sharedLog: Pick<SharedLog, 'join'>, clock: Clock, usage: VerdictCounter | undefined) {
    this.#sharedLog = sharedLog;
    this.#clock = clock;
    this.#expiry = new ExpiryClock(clock);
    this.#usage = usage;
  }

  /** Tells whether a key's roles and its owner's identity are in memory, and may be told of at this instant. */
  isKnown(entry: Entry): boolean {
    return entry.links === undefined || this.#sharedLog.join(entry, entry.links) !== undefined;
  }

  /** Returns all that a key with roles or an owner may do; undefined = its own record says it, or memory lacks it. */
  effectivePermissionsOf(entry: Entry): EffectivePermissions | undefined {
    return entry.links && this.#sharedLog.join(entry, entry.links)?.effectivePermissions;
  }

  /**
   * Judges a key, takes what the request costs, and counts the verdict. undefined = the key is good, and whether it may be used so
   * much must be asked; or memory lacks its roles or its owner's identity.
   */
  judge(entry: Entry, question: Question): Verdict | undefined {
    const join = entry.links && this.#sharedLog.join(entry, entry.links);
    if (join === undefined && entry.links !== undefined) return undefined;
    const effectivePermissions = join?.effectivePermissions;
    // Most keys never expire, and need no clock.
    const nowMs = entry.expires === 0 ? 0 : this.#expiry.nowMs();
    let verdict = judge(entry, question, nowMs, effectivePermissions);
    if (question.isRecheck) return verdict;
    const { requirements, tags } = question;
    if (verdict.code === 'VALID' && isMetered(entry, requirements)) {
      const needs = needsOf(entry, requirements, effectivePermissions);
      const spending = typeof needs === 'string' ? undefined : spend(needs, this.#clock.monotonicMs());
      if (spending === undefined) return undefined;
      verdict = { code: spending.code, entry, spending, effectivePermissions };
    }
    this.#usage?.count(entry, verdict.code, tags);
    return verdict;
  }
}
