import type { Clock, Timer } from '#shared/process/clock.ts';
import { instant } from '#shared/process/clock.ts';
import { Deadlines } from '#shared/process/deadlines.ts';
import type { Need } from '#shared/protocol/allowances/allowance.ts';
import { RECALL_MS } from '#shared/protocol/allowances/exchange.ts';
import { isPlaces } from '#shared/protocol/allowances/limits.ts';
import type { Pool } from '#shared/protocol/allowances/pool.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { drawBytes } from '#shared/rules/key-format.ts';
import { LookupGivenUp } from './given-up.ts';
import { HOLD_ID, type HoldRequest } from './question.ts';
import { untilServed } from './until-served.ts';

const TOKEN_BYTES = 16;
/** Maximum number of open holds, 300 bytes each. Further questions with a hold get 503. */
export const HOLDS_MAX = 50_000;
/** Maximum number of open holds of one key, so that it leaves room for others. */
export const HOLDS_PER_KEY_MAX = 10_000;
/** Time for which a release that is repeated gets the same answer, in milliseconds. */
export const ANSWER_KEPT_MS = 60_000;
/** Maximum number of answers that are remembered so long. Beyond it, the older ones are forgotten earlier. */
export const ANSWERS_MAX = 25_000;
/** Maximum number of times that a release whose cost is too high asks for less. */
const ATTEMPTS_MAX = 5;

/** A hold in an answer: an accepted question whose work has not ended. */
export interface Hold {
  readonly id: string;
  /** Unix milliseconds. */
  readonly expiresAt: number;
}

/** The cost of a hold that ended. */
export interface Release {
  /** Credits; 0 for a key with unlimited credits. */
  readonly charged: number;
  /** The part of the cost that was not there; undefined = none. */
  readonly short?: number | undefined;
  /** Credits left; undefined = unlimited, or unknown. */
  readonly remaining?: number | undefined;
}

/** The part of a verifier that ends holds. */
export type HoldEnder = Pick<Holds, 'release'>;

/** The part of one pool in a hold. */
interface Part {
  readonly pool: Pool;
  readonly held: number;
  /** When, as the pool counts. */
  readonly since: number;
  readonly isCredits: boolean;
}

interface OpenHold {
  readonly keyId: string;
  readonly apiId: string;
  /** Places, and at most once credits. */
  readonly parts: readonly Part[];
  readonly timer: Timer;
  /** A release that waits for Redis. */
  releasing: Promise<Release> | undefined;
  /** True = its time was over during that wait. */
  isOver: boolean;
}

/** The accepted questions whose work has not ended. Each has its reserved credits and its places until then. */
export class Holds {
  readonly #clock: Clock;
  readonly #start: string;
  readonly #deadlines: Deadlines<(error: unknown) => void>;
  readonly #open = new Map<string, OpenHold>();
  readonly #perKey = new Map<string, number>();
  /** Answers of this time, and of the one before. */
  #answers = new Map<string, Release>();
  #earlierAnswers = new Map<string, Release>();
  #answersSinceMs = 0;
  /** Counts since the start, for metrics. */
  readonly counts = { expired: 0 };

  /**
   * @param options.verifierId part of each id, so that another verifier can say whose it is
   * @param options.waitMs longest wait for Redis, in milliseconds. RECALL_MS is added to it.
   */
  constructor(options: { verifierId: string; clock: Clock; waitMs: number; tooSlow: () => Error }) {
    const { verifierId, clock, waitMs, tooSlow } = options;
    this.#clock = clock;
    this.#start = `hold_${verifierId}_`;
    this.#deadlines = new Deadlines(clock, waitMs + RECALL_MS, (fail) => fail(tooSlow()));
  }

  /** Number of open holds. */
  get size(): number {
    return this.#open.size;
  }

  /** Throws LookupGivenUp if there is no room for another hold of this key. */
  checkRoom(keyId: string): void {
    if (this.#open.size >= HOLDS_MAX) throw new LookupGivenUp('held', 'too many holds are open');
    if ((this.#perKey.get(keyId) ?? 0) >= HOLDS_PER_KEY_MAX)
      throw new LookupGivenUp('held', 'too many holds of this key are open');
  }

  /** Begins a hold with what a question was just accepted for. */
  begin(keyId: string, apiId: string, needs: readonly Need[], { forMs }: HoldRequest): Hold {
    const id = this.#start + drawBytes(TOKEN_BYTES).toString('base64url');
    const parts: Part[] = [];
    for (const { pool, cost, limit } of needs) {
      const isCredits = limit === undefined;
      if (isCredits || isPlaces(limit)) parts.push({ pool, held: cost, since: pool.begin(), isCredits });
    }
    const timer = this.#clock.after(forMs, () => this.#expire(id));
    this.#open.set(id, { keyId, apiId, parts, timer, releasing: undefined, isOver: false });
    this.#perKey.set(keyId, (this.#perKey.get(keyId) ?? 0) + 1);
    return { id, expiresAt: Math.floor(this.#clock.wallMs()) + forMs };
  }

  /**
   * Ends a hold, and charges the cost instead of what was reserved. Frees its places. The same call again gets the same
   * answer for a minute. Throws HOLD_UNKNOWN; rejects with SERVICE_UNAVAILABLE if a higher cost needs Redis and there is
   * no answer: the hold then goes on.
   * @param cost undefined = what was reserved
   * @param allowedApis the APIs about whose keys the caller may learn anything; undefined = all
   */
  release(id: string, cost?: number, allowedApis?: ReadonlySet<string>): Release | Promise<Release> {
    const hold = this.#open.get(id);
    if (hold === undefined) {
      const release = this.#answers.get(id) ?? this.#earlierAnswers.get(id);
      if (release) return release;
      throw this.#unknown(id);
    }
    const { parts, apiId } = hold;
    if (allowedApis?.has(apiId) === false) throw this.#unknown(id);
    if (hold.releasing !== undefined) return hold.releasing;
    const credits = parts.find(({ isCredits }) => isCredits);
    if (credits === undefined) return this.#conclude(id, 0, { charged: 0 });
    const { pool, held } = credits;
    const more = (cost ?? held) - held;
    if (more <= 0) {
      const charged = held + more;
      this.#end(id, charged);
      return this.#remember(id, { charged, ...remainingOf(pool) });
    }
    hold.releasing = this.#takeMore(pool, more).then(
      (spent) => {
        const release = { charged: held + spent, ...remainingOf(pool) };
        return this.#conclude(id, held, spent === more ? release : { ...release, short: more - spent });
      },
      (error: unknown) => {
        hold.releasing = undefined;
        if (hold.isOver) this.#expire(id);
        throw error;
      },
    );
    return hold.releasing;
  }

  /** Resolves with how many credits of `cost` were there. */
  async #takeMore(pool: Pool, cost: number): Promise<number> {
    let need = cost;
    let attempts = 0;
    const { spent } = await untilServed(this.#deadlines, (waiter) => {
      // Nothing more is taken after a loss of the verifier's name, or of credits that a change replaced.
      if (pool.isEnded) return { spent: 0 };
      if (!pool.isLive) throw unavailable('not in sync with Redis');
      for (;;) {
        const now = instant(this.#clock);
        const outlook = pool.look(need, now);
        if (outlook === 'enough') pool.take(need, now.monotonicMs);
        if (outlook === 'enough') return { spent: need };
        if (outlook === 'too little') need = Math.min(need - 1, pool.remaining());
        if (need === 0 || (outlook === 'too little' && ++attempts === ATTEMPTS_MAX)) return { spent: 0 };
        if (outlook === 'too little') continue;
        pool.ask(waiter, need);
        return undefined;
      }
    });
    return spent;
  }

  #conclude(id: string, charged: number, release: Release): Release {
    this.#end(id, charged);
    return this.#remember(id, release);
  }

  #remember(id: string, release: Release): Release {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#answersSinceMs >= ANSWER_KEPT_MS || this.#answers.size >= ANSWERS_MAX) {
      this.#earlierAnswers = this.#answers;
      this.#answers = new Map();
      this.#answersSinceMs = nowMs;
    }
    this.#answers.set(id, release);
    return release;
  }

  /** Ends a hold that nobody released in time: it is charged in full. */
  #expire(id: string): void {
    const hold = this.#open.get(id);
    if (hold?.releasing !== undefined) {
      hold.isOver = true;
      return;
    }
    this.counts.expired++;
    this.#end(id, Number.POSITIVE_INFINITY);
  }

  /** @param charged of what it held of credits, for good */
  #end(id: string, charged: number): void {
    const hold = this.#open.get(id);
    if (hold === undefined) return;
    this.#open.delete(id);
    hold.timer.cancel();
    for (const { pool, held, since, isCredits } of hold.parts)
      pool.settle(since, held, isCredits ? Math.min(held, charged) : 0);
    const others = (this.#perKey.get(hold.keyId) ?? 1) - 1;
    if (others === 0) this.#perKey.delete(hold.keyId);
    else this.#perKey.set(hold.keyId, others);
  }

  #unknown(id: string): ApiError {
    const [, verifierId] = HOLD_ID.exec(id) ?? [];
    const isOwn = verifierId === undefined || id.startsWith(this.#start);
    const other = `it is of the verifier ${verifierId}; release it there`;
    const over = 'it was released more than a minute ago, or its time was over, or it never was';
    return new ApiError('HOLD_UNKNOWN', `hold: ${isOwn ? over : other}`);
  }
}

/** Returns the rest, unless a change replaced what the hold was of. */
const remainingOf = (pool: Pool): Pick<Release, 'remaining'> =>
  pool.isKnown ? { remaining: pool.remaining() } : {};
