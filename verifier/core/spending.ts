import { ApiError, unavailable } from '#shared/contract/errors.ts';
import type { Clock } from '#shared/lang/clock.ts';
import { Deadlines } from '#shared/lang/deadlines.ts';
import { ask, giveBack, needsOf } from './allowance.ts';
import type { KeyCache } from './key-cache.ts';
import type { Question } from './question.ts';
import type { Verdict } from './verdict.ts';
import type { Verdicts } from './verdicts.ts';

/** A question that is looked up. */
export interface Lookup {
  readonly digest: string;
  readonly question: Question;
}

/**
 * Longest time that holders get to give back recalled credits, in milliseconds. After that, the verdict does
 * without them.
 */
export const RECALL_MS = 50;

/** Decides on keys whose credits or limits are not in memory. */
export class Spender {
  readonly #cache: Pick<KeyCache, 'get'>;
  readonly #verdicts: Verdicts;
  readonly #lookUp: (lookup: Lookup) => Promise<Verdict>;
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
    this.#deadlines = new Deadlines(clock, waitMs + RECALL_MS, (fail) => fail(tooSlow()));
  }

  /**
   * Resolves with the verdict once Redis has replied about the credits and limits. Decides everything anew in
   * the same synchronous block as the reply, so that no other request takes the credits first, and no state
   * older than memory's counts.
   */
  verdict(lookup: Lookup): Promise<Verdict> {
    const { digest, question } = lookup;
    return new Promise((resolve, reject) => {
      const deadline = this.#deadlines.begin(reject);
      let isOver = false;
      const end = (settle: () => void) => {
        isOver = true;
        this.#deadlines.end(deadline);
        settle();
      };
      const waiter = {
        get over() {
          return isOver || deadline.hasPassed;
        },
        again: () => {
          if (waiter.over) return;
          const entry = this.#cache.get(digest);
          if (entry === undefined) return end(() => resolve(this.#lookUp(lookup)));
          if (!entry.epoch.lease.holds()) return end(() => reject(unavailable('not in sync with Redis')));
          if (!this.#verdicts.isKnown(entry)) return end(() => resolve(this.#lookUp(lookup)));
          const verdict = this.#verdicts.judge(entry, question);
          const needs = needsOf(entry, question.requirements, this.#verdicts.effectivePermissionsOf(entry));
          if (typeof needs === 'string') {
            const unknown = new ApiError(
              'BAD_REQUEST',
              `ratelimits: neither the key nor its identity has a limit named ${needs}`,
            );
            return end(() => (verdict ? resolve(verdict) : reject(unknown)));
          }
          if (!verdict) return ask(needs, waiter, entry.epoch.lease.latestCheck);
          if (verdict.code !== 'VALID') giveBack(needs);
          end(() => resolve(verdict));
        },
        fail: (error: unknown) => {
          if (!waiter.over) end(() => reject(error));
        },
      };
      waiter.again();
    });
  }
}
