import { ask, giveBack, type Need, spend } from '#shared/metering/allowance.ts';
import { RECALL_MS } from '#shared/metering/exchange.ts';
import type { Pool } from '#shared/metering/pool.ts';
import type { Clock } from '#shared/process/clock.ts';
import { Deadlines } from '#shared/process/deadlines.ts';
import type { Entry, KeyCache } from '#shared/protocol/follower/key-cache.ts';
import type { EffectivePermissions } from '#shared/protocol/follower/permissions.ts';
import type { SharedLog } from '#shared/protocol/follower/shared-log.ts';
import type { ReportedVerdict, VerdictCounter } from '#shared/reports/port.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { brokenRule, type KeyFacts, RULES } from '#shared/rules/rules.ts';
import type { Hold, Holds } from '../metering/holds.ts';
import { hasHeld, isMetered, needsOf } from '../metering/needs.ts';
import { untilServed } from '../metering/until-served.ts';
import { DEFAULT_REQUIREMENTS, LOOK, type Question } from './question.ts';

/** A decision on a key. `entry` is present if the table of verdicts says that the response shows the key. */
export interface Verdict extends ReportedVerdict {
  /** The hold that the question asked for; undefined = it did not, or the key was refused. */
  readonly hold?: Hold;
  /** A token for the API behind a gateway; undefined = there is none. */
  readonly token?: string;
}

/** A source of verdicts: `Verifier`, or an object with the same methods. */
export interface VerdictSource {
  /** Returns the verdict from memory, without waiting; undefined = the caller must call `lookUp`. */
  decide(question: Question): Verdict | undefined;
  /** Resolves with the verdict through Redis. Rejects with ApiError SERVICE_UNAVAILABLE if there is none. */
  lookUp(question: Question): Promise<Verdict>;
}

export const NOT_FOUND: Verdict = Object.freeze({ code: 'NOT_FOUND' });
export const FORBIDDEN: Verdict = Object.freeze({ code: 'FORBIDDEN' });

/**
 * Applies the rules to a known key of an API that this verifier answers for.
 * @param nowMs Unix time that never goes back
 * @param effectivePermissions the effective permissions of a key with roles or an identity
 */
export function ruleOn(
  entry: Entry,
  question: QuestionBasics,
  nowMs: number,
  effectivePermissions?: EffectivePermissions,
): Verdict {
  const { apiId, presenter, requirements } = question;
  const about = { apiId, presenter, permissions: requirements.permissions };
  const rule = brokenRule(factsOf(entry, effectivePermissions), about, nowMs);
  const code = rule === undefined ? 'VALID' : RULES[rule].code;
  if (code === 'FORBIDDEN' && rule) return { code, about: entry, rule };
  if (rule) return { code, entry, effectivePermissions, rule };
  return effectivePermissions === undefined ? { code, entry } : { code, entry, effectivePermissions };
}

const factsOf = (entry: Entry, effectivePermissions: EffectivePermissions | undefined): KeyFacts => ({
  apiId: entry.epoch.apiId,
  enabled: entry.enabled,
  identity: effectivePermissions?.identity,
  expires: entry.expires,
  ranges: entry.ranges,
  origins: entry.origins,
  slugSet: (effectivePermissions ?? entry.ownPermissions)?.slugSet,
});

/** Returns true if a key is enabled, and its identity too. */
export const isEnabled = (
  { enabled }: Entry,
  effectivePermissions: EffectivePermissions | undefined,
): boolean => enabled && effectivePermissions?.identity?.enabled !== false;

/** The parts of a question that rules and notes need. */
export type QuestionBasics = Pick<Question, 'apiId' | 'presenter' | 'requirements'>;

/** Returns the route of a request; undefined = its method or its target is unknown. */
export const routeOf = (method: string | undefined, target: string | undefined): string | undefined =>
  method && target ? `${method} ${target.split('?', 1)[0]}` : undefined;

/** Decides on keys in memory, from the state of memory at that very instant. */
export class Verdicts {
  readonly #sharedLog: Pick<SharedLog, 'join'>;
  readonly #expiry: ExpiryClock;
  readonly #usage: VerdictCounter | undefined;
  readonly #holds: Holds;
  /** Counts since the start, for metrics. */
  readonly counts = { wrongAddresses: 0, wrongOrigins: 0 };

  /** @param usage counts every verdict; undefined = nothing counts them */
  constructor(
    sharedLog: Pick<SharedLog, 'join'>,
    clock: Clock,
    usage: VerdictCounter | undefined,
    holds: Holds,
  ) {
    this.#holds = holds;
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
   * @param settled what the question settled on where its hold takes less
   */
  decide(entry: Entry, question: Question, settled?: Map<Pool, Need>): Verdict | undefined {
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
    const { requirements, tags, hold } = question;
    let needs: Need[] | string = NO_NEEDS;
    if (verdict.code === 'VALID' && isMetered(entry, requirements, effectivePermissions))
      needs = needsOf(entry, requirements, effectivePermissions, hold, settled);
    // Spender names the limit that nobody has.
    if (typeof needs === 'string') return undefined;
    const holds = hold && verdict.code === 'VALID' && hasHeld(needs, hold);
    const checkRoom = holds ? () => this.#holds.checkRoom(entry.keyId) : undefined;
    if (needs === NO_NEEDS) checkRoom?.();
    else {
      const spending = spend(needs, entry.epoch.lease.latestCheck, checkRoom);
      if (spending === undefined) return undefined;
      verdict = { code: spending.code, entry, spending, effectivePermissions };
      if (requirements === LOOK) return verdict;
    }
    if (holds && verdict.code === 'VALID')
      verdict = { ...verdict, hold: this.#holds.begin(entry, question, needs, hold) };
    this.#usage?.count(entry, verdict.code, tags);
    return verdict;
  }
}

const NO_NEEDS: Need[] = [];

/** A question that is looked up. */
export interface Lookup {
  readonly digest: string;
  readonly question: Question;
  /** When it was asked, by the monotonic clock. */
  readonly sinceMs: number;
}

/** Decides on keys whose credits or limits are not in memory. */
export class Spender {
  readonly #cache: Pick<KeyCache, 'get'>;
  readonly #verdicts: Verdicts;
  readonly #lookUp: (lookup: Lookup) => Promise<Verdict>;
  readonly #clock: Clock;
  readonly #waitMs: number;
  readonly #tooSlow: () => Error;
  readonly #deadlines: Deadlines<(error: unknown) => void>;

  constructor(options: {
    cache: Pick<KeyCache, 'get'>;
    verdicts: Verdicts;
    clock: Clock;
    /** Looks up a key that has left memory meanwhile. */
    lookUp: (lookup: Lookup) => Promise<Verdict>;
    /** Longest wait for Redis, in milliseconds. RECALL_MS is added to it. */
    waitMs: number;
    tooSlow: () => Error;
  }) {
    const { clock, waitMs, tooSlow } = options;
    this.#cache = options.cache;
    this.#verdicts = options.verdicts;
    this.#lookUp = options.lookUp;
    this.#clock = clock;
    this.#waitMs = waitMs;
    this.#tooSlow = tooSlow;
    this.#deadlines = new Deadlines(clock, waitMs + RECALL_MS, (fail) => fail(tooSlow()));
  }

  /**
   * Resolves with the verdict once Redis has replied about the credits and limits. Decides everything anew in
   * the same synchronous block as the reply, so that no other request takes the credits first, and only what is
   * in memory then counts.
   */
  verdict(lookup: Lookup): Promise<Verdict> {
    const { digest, question } = lookup;
    const { hold } = question;
    const settled = hold && new Map<Pool, Need>();
    return untilServed(this.#deadlines, (waiter) => {
      const entry = this.#cache.get(digest);
      if (entry === undefined) return this.#lookUpAgain(lookup);
      if (!entry.epoch.lease.holds()) throw unavailable('not in sync with Redis');
      if (!this.#verdicts.isKnown(entry)) return this.#lookUpAgain(lookup);
      const verdict = this.#verdicts.decide(entry, question, settled);
      const effectivePermissions = this.#verdicts.effectivePermissionsOf(entry);
      const needs = needsOf(entry, question.requirements, effectivePermissions, hold, settled);
      if (typeof needs === 'string') {
        if (verdict) return verdict;
        throw new ApiError(
          'BAD_REQUEST',
          `ratelimits: neither the key nor its identity or roles have a limit named ${needs}`,
        );
      }
      if (!verdict) ask(needs, waiter, entry.epoch.lease.latestCheck);
      else if (verdict.code !== 'VALID') giveBack(needs);
      return verdict;
    });
  }

  /**
   * Returns what a key that was accepted needs now of a rate limit; undefined = memory has neither the key nor the limit
   * any more.
   */
  needNow(digest: string, name: string): Need | undefined {
    const entry = this.#cache.get(digest);
    if (entry === undefined || !this.#verdicts.isKnown(entry)) return undefined;
    if (!entry.epoch.lease.holds()) throw unavailable('not in sync with Redis');
    const requirements = { ...DEFAULT_REQUIREMENTS, limits: [{ name, cost: 0 }] };
    const needs = needsOf(entry, requirements, this.#verdicts.effectivePermissionsOf(entry), undefined);
    return typeof needs === 'string' ? undefined : needs.find(({ limit }) => limit?.name === name);
  }

  /** More keys than memory has room for would else push each other out for ever, each time before their credits come. */
  #lookUpAgain(lookup: Lookup): Promise<Verdict> {
    if (this.#clock.monotonicMs() - lookup.sinceMs > this.#waitMs) throw this.#tooSlow();
    return this.#lookUp(lookup);
  }
}

/**
 * Time for which a date must have stood to be trusted. It stands while the offset changes by less than
 * STEP_MS.
 */
export const STANDING_MS = 3_600_000;
/** A smaller change of the date is no step, but rounding or the adjustment of a clock. */
const STEP_MS = 1000;

/**
 * The date for checking expiry. A date that is set forward counts immediately. A date that is set back below
 * one that stood for an hour counts only after standing for an hour itself; until then an expired key stays
 * expired. So a wrong date, in either direction, has no effect later than an hour after its correction; if it
 * lasted less than an hour, its effect ends with the correction. The date is stored as its offset from the
 * monotonic clock, because the offset changes only when somebody sets the date.
 */
export class ExpiryClock {
  readonly #clock: Clock;
  /** Offset of the latest date that has stood for an hour, or else of the first date, in milliseconds. */
  #standingMs: number;
  /** Offset of the current date, and the monotonic time since which it stands, in milliseconds. */
  #presentMs: number;
  #sinceMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sinceMs = clock.monotonicMs();
    this.#presentMs = this.#standingMs = clock.wallMs() - this.#sinceMs;
  }

  /** Returns Unix milliseconds. */
  nowMs(): number {
    const monotonicMs = this.#clock.monotonicMs();
    const aheadMs = this.#clock.wallMs() - monotonicMs;
    if (Math.abs(aheadMs - this.#presentMs) >= STEP_MS) {
      this.#presentMs = aheadMs;
      this.#sinceMs = monotonicMs;
    } else if (monotonicMs - this.#sinceMs >= STANDING_MS) {
      this.#standingMs = this.#presentMs;
    }
    return monotonicMs + Math.max(this.#standingMs, aheadMs);
  }
}
