import type { Clock, Timer } from '#shared/process/clock.ts';
import { Deadlines } from '#shared/process/deadlines.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { drawBytes } from '#shared/rules/key-format.ts';
import type { Need } from './allowance.ts';
import { instant } from './lease.ts';
import { isPlaces } from './limits.ts';
import { type Pool, RECALL_MS, untilServed } from './pool.ts';
import { HOLD_ID, type HoldRequest } from './question.ts';

const TOKEN_BYTES = 16;
/** Maximum number of open holds, 300 bytes each. Further questions with a hold get 503. */
const HOLDS_MAX = 50_000;
/** Maximum number of open holds of one key, so that it leaves room for others. */
const HOLDS_PER_KEY_MAX = 10_000;
/** Time for which a release that is repeated gets the same answer, in milliseconds. */
const ANSWER_KEPT_MS = 60_000;
/** Maximum number of remembered answers of one such time; then the older ones go. */
const ANSWERS_MAX = 25_000;
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

interface OpenHold {
  readonly keyId: string;
  readonly apiId: string;
  /** Those in which it has a place. */
  readonly places: readonly Pool[];
  /** undefined = the key has unlimited credits. */
  readonly credits: Pool | undefined;
  readonly reserved: number;
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

  /** Throws SERVICE_UNAVAILABLE if there is no room for another hold of this key. */
  checkRoom(keyId: string): void {
    if (this.#open.size >= HOLDS_MAX) throw unavailable('too many holds are open');
    if ((this.#perKey.get(keyId) ?? 0) >= HOLDS_PER_KEY_MAX)
      throw unavailable('too many holds of this key are open');
  }

  /** Begins a hold with what a question was just accepted for. */
  begin(keyId: string, apiId: string, needs: readonly Need[], { forMs }: HoldRequest): Hold {
    const id = this.#start + drawBytes(TOKEN_BYTES).toString('base64url');
    const places: Pool[] = [];
    let credits: Pool | undefined;
    let reserved = 0;
    for (const { pool, cost, limit } of needs) {
      if (limit === undefined) [credits, reserved] = [pool, cost];
      else if (isPlaces(limit)) places.push(pool);
      else continue;
      pool.hold();
    }
    const timer = this.#clock.after(forMs, () => this.#expire(id));
    const about = { keyId, apiId, places, credits, reserved };
    this.#open.set(id, { ...about, timer, releasing: undefined, isOver: false });
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
    const { credits, reserved, apiId } = hold;
    if (allowedApis?.has(apiId) === false) throw this.#unknown(id);
    if (hold.releasing !== undefined) return hold.releasing;
    if (credits === undefined) return this.#conclude(id, 0, { charged: 0 });
    const more = (cost ?? reserved) - reserved;
    if (more <= 0)
      return this.#conclude(id, -more, { charged: reserved + more, remaining: credits.remaining - more });
    hold.releasing = this.#takeMore(credits, more).then(
      (spent) => {
        const short = more - spent;
        const release = { charged: reserved + spent, remaining: credits.remaining };
        return this.#conclude(id, 0, short === 0 ? release : { ...release, short });
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
      // After a loss of its name the verifier cannot take more under it.
      if (pool.isEnded) return { spent: 0 };
      for (;;) {
        const now = instant(this.#clock);
        const outlook = pool.look(need, now);
        if (outlook === 'enough') pool.take(need, now.monotonicMs);
        if (outlook === 'enough') return { spent: need };
        if (outlook === 'too little') need = Math.min(need - 1, pool.remaining);
        if (need === 0 || (outlook === 'too little' && ++attempts === ATTEMPTS_MAX)) return { spent: 0 };
        if (outlook === 'too little') continue;
        pool.ask(waiter, need);
        return undefined;
      }
    });
    return spent;
  }

  #conclude(id: string, unneeded: number, release: Release): Release {
    this.#end(id, unneeded);
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
    this.#end(id, 0);
  }

  #end(id: string, unneeded: number): void {
    const hold = this.#open.get(id);
    if (hold === undefined) return;
    this.#open.delete(id);
    hold.timer.cancel();
    hold.credits?.release(unneeded);
    for (const pool of hold.places) pool.release(1);
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
