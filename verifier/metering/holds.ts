import { RECALL_MS } from '#shared/metering/exchange.ts';
import type { Pool } from '#shared/metering/pool.ts';
import type { Clock, Timer } from '#shared/process/clock.ts';
import { instant, pause } from '#shared/process/clock.ts';
import { Deadlines } from '#shared/process/deadlines.ts';
import type { Entry, Epoch } from '#shared/protocol/follower/key-cache.ts';
import { isPlaces } from '#shared/protocol/records/limits-in-memory.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { drawBytes } from '#shared/rules/key-format.ts';
import { LookupGivenUp } from '../core/given-up.ts';
import type { HoldEnder, LimitRelease, MeterHost, Release } from '../core/ports.ts';
import { type Costs, CREDITS, HOLD_ID, type HoldRequest, type Question } from '../core/question.ts';
import type { Hold } from '../core/verdict.ts';
import { ask, look, lowered, type Need } from './allowance.ts';
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

/** The part of one pool in a hold. */
interface Part {
  readonly pool: Pool;
  readonly held: number;
  /** When, as the pool counts. */
  readonly since: number;
  /** The name of a rate limit, or `credits`; undefined = places. */
  readonly name: string | undefined;
}

/** A cost beyond the reservation, and the part of it that is there. */
interface More {
  readonly part: Part;
  readonly cost: number;
  need: number;
  lowered?: number | undefined;
}

interface OpenHold {
  readonly keyId: string;
  readonly apiId: string;
  /** Places, rate limits, and at most once credits. */
  readonly parts: readonly Part[];
  /** The names that its release may say. */
  readonly names: readonly string[];
  /** The place of its key in memory; '' = it has no rate limits. */
  readonly digest: string;
  readonly timer: Timer;
  /** A release that waits for Redis. */
  releasing: Promise<Release> | undefined;
  /** True = its time was over during that wait. */
  isOver: boolean;
}

/** The accepted questions whose work has not ended. Each has its reserved credits and its places until then. */
export class Holds implements HoldEnder {
  readonly #clock: Clock;
  readonly #start: string;
  readonly #deadlines: Deadlines<(error: unknown) => void>;
  readonly #placeOf: (key: string) => string;
  readonly #needNow: (digest: string, limitName: string) => Need | undefined;
  readonly #open = new Map<string, OpenHold>();
  readonly #perKey = new Map<string, number>();
  /** Answers of this time, and of the one before. */
  #answers = new Map<string, Release>();
  #earlierAnswers = new Map<string, Release>();
  #answersSinceMs = 0;
  /** Aborts when no hold is open any more, after `end`; undefined = holds may begin. */
  #ending: AbortController | undefined;
  /** Counts since the start, for metrics. */
  readonly counts = { expired: 0 };

  /**
   * @param host.verifierId part of each id, so that another verifier can say whose it is
   * @param host.waitMs longest wait for Redis, in milliseconds. RECALL_MS is added to it.
   * @param needNow returns the pool and the amount of a rate limit that the key has now; undefined = none, or unknown
   */
  constructor(
    host: Pick<MeterHost, 'verifierId' | 'clock' | 'waitMs' | 'tooSlow' | 'placeOf'>,
    needNow: (digest: string, limitName: string) => Need | undefined,
  ) {
    const { verifierId, clock, waitMs, tooSlow } = host;
    this.#clock = clock;
    this.#placeOf = host.placeOf;
    this.#needNow = needNow;
    this.#start = `hold_${verifierId}_`;
    this.#deadlines = new Deadlines(clock, waitMs + RECALL_MS, (fail) => fail(tooSlow()));
  }

  /** Number of open holds. */
  get size(): number {
    return this.#open.size;
  }

  /**
   * Begins no more holds, and resolves when the last has ended, or after `waitMs`. Those that are still open can be released
   * until the process ends.
   */
  async end(waitMs: number): Promise<void> {
    this.#ending ??= new AbortController();
    if (this.size > 0) await pause(this.#clock, waitMs, this.#ending.signal);
  }

  /** Resolves when no release waits for Redis. */
  async released(): Promise<void> {
    await Promise.allSettled([...this.#open.values()].map(({ releasing }) => releasing));
  }

  /** Throws LookupGivenUp if there is no room for another hold of this key. */
  checkRoom(keyId: string): void {
    if (this.#ending) throw new LookupGivenUp('held', 'the verifier stops');
    if (this.#open.size >= HOLDS_MAX) throw new LookupGivenUp('held', 'too many holds are open');
    if ((this.#perKey.get(keyId) ?? 0) >= HOLDS_PER_KEY_MAX)
      throw new LookupGivenUp('held', 'too many holds of this key are open');
  }

  /** Begins a hold with what a question was just accepted for. */
  begin(
    { keyId, epoch: { apiId } }: Pick<Entry, 'keyId'> & { readonly epoch: Pick<Epoch, 'apiId'> },
    { key }: Pick<Question, 'key'>,
    needs: readonly Need[],
    { forMs, names = [] }: HoldRequest,
  ): Hold {
    const id = this.#start + drawBytes(TOKEN_BYTES).toString('base64url');
    const parts: Part[] = [];
    for (const { pool, cost, limit, isHeld } of needs) {
      const name = limit === undefined ? CREDITS : isHeld ? limit.name : undefined;
      if (name !== undefined || (limit && isPlaces(limit)))
        parts.push({ pool, held: cost, since: pool.begin(), name });
    }
    const timer = this.#clock.after(forMs, () => this.#expire(id));
    const digest = names.length === 0 ? '' : this.#placeOf(key);
    this.#open.set(id, { keyId, apiId, parts, names, digest, timer, releasing: undefined, isOver: false });
    this.#perKey.set(keyId, (this.#perKey.get(keyId) ?? 0) + 1);
    const hold = { id, expiresAt: Math.floor(this.#clock.wallMs()) + forMs };
    return needs.some(({ least }) => least !== undefined) ? { ...hold, ...amountsTaken(parts) } : hold;
  }

  release(id: string, costs: Costs = {}, allowedApis?: ReadonlySet<string>): Release | Promise<Release> {
    const hold = this.#open.get(id);
    if (hold === undefined) {
      const release = this.#answers.get(id) ?? this.#earlierAnswers.get(id);
      if (release) return release;
      throw this.#unknown(id);
    }
    const { parts, names, apiId, digest } = hold;
    if (allowedApis?.has(apiId) === false) throw this.#unknown(id);
    if (hold.releasing !== undefined) return hold.releasing;
    for (const name of Object.keys(costs))
      if (name !== CREDITS && !names.includes(name))
        throw new ApiError(
          'BAD_REQUEST',
          `costs.${name}: the hold reserves nothing of a rate limit of this name${
            names.length > 0
              ? `, but of ${names.join(', ')}`
              : '; name it in hold.ratelimits of keys.verifyKey'
          }`,
        );
    const more = parts.flatMap((part): More[] => {
      const cost = costOf(part, costs);
      return cost > part.held ? [{ part, cost: cost - part.held, need: cost - part.held }] : [];
    });
    if (more.length === 0) return this.#conclude(id, costs, more);
    hold.releasing = this.#takeMore(more, digest).then(
      () => this.#conclude(id, costs, more),
      (error: unknown) => {
        hold.releasing = undefined;
        if (hold.isOver) this.#expire(id);
        throw error;
      },
    );
    return hold.releasing;
  }

  /** Takes what work cost beyond what was reserved, as far as it is there, and notes how much that is. */
  async #takeMore(all: readonly More[], digest: string): Promise<void> {
    await untilServed(this.#deadlines, (waiter) => {
      const now = instant(this.#clock);
      const takers: Need[] = [];
      let isWaiting = false;
      for (const more of all) {
        const place = this.#placeFor(more.part, digest);
        const need = place && lowered({ ...place, cost: more.need, lowered: more.lowered }, 0, now);
        [more.need, more.lowered] = [need?.cost ?? 0, need?.lowered];
        if (need === undefined || need.cost === 0) continue;
        takers.push(need);
        isWaiting ||= look(need, now) === undefined;
      }
      if (isWaiting) ask(takers, waiter, now);
      else for (const { pool, cost } of takers) pool.take(cost, now.monotonicMs);
      return isWaiting ? undefined : takers;
    });
  }

  /** The pool of a part and its limit, from which more may be taken now; undefined = nothing may. */
  #placeFor({ pool, name = '' }: Part, digest: string): Pick<Need, 'pool' | 'limit'> | undefined {
    if (name !== CREDITS) return this.#needNow(digest, name);
    // Nothing more is taken after a loss of the verifier's name, or of credits that a change replaced.
    if (pool.isEnded) return undefined;
    if (!pool.isLive) throw unavailable('not in sync with Redis');
    return { pool, limit: undefined };
  }

  /** Ends a hold, and remembers what it cost. */
  #conclude(id: string, costs: Costs, more: readonly More[]): Release {
    let release: Release = { charged: 0 };
    const ratelimits: LimitRelease[] = [];
    for (const part of this.#end(id)) {
      const { pool, held, since, name } = part;
      const cost = Math.min(held, costOf(part, costs));
      const isLost = pool.settle(since, held, cost);
      if (name === undefined) continue;
      const { cost: beyond = 0, need = 0 } = more.find((each) => each.part === part) ?? {};
      const settled = {
        charged: cost + need,
        ...(beyond > need && { short: beyond - need }),
        ...(isLost && { lost: held - cost }),
        // A change may have replaced what the hold was of, or only Redis knows what of it can be spent again.
        ...(pool.isKnown &&
          !isLost &&
          (cost === held || pool.isCurrent(since)) && { remaining: pool.remaining(pool.window?.limit) }),
      };
      if (name === CREDITS) release = settled;
      else ratelimits.push({ name, ...settled });
    }
    if (ratelimits.length > 0) release = { ...release, ratelimits };
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
    for (const part of this.#end(id)) part.pool.settle(part.since, part.held, costOf(part, {}));
  }

  /** Returns the parts that are to be settled. */
  #end(id: string): readonly Part[] {
    const hold = this.#open.get(id);
    if (hold === undefined) return [];
    this.#open.delete(id);
    hold.timer.cancel();
    if (this.size === 0) this.#ending?.abort();
    const others = (this.#perKey.get(hold.keyId) ?? 1) - 1;
    if (others === 0) this.#perKey.delete(hold.keyId);
    else this.#perKey.set(hold.keyId, others);
    return hold.parts;
  }

  #unknown(id: string): ApiError {
    const [, verifierId] = HOLD_ID.exec(id) ?? [];
    const isOwn = verifierId === undefined || id.startsWith(this.#start);
    const other = `it is of the verifier ${verifierId}; release it there`;
    const over = 'it was released more than a minute ago, or its time was over, or it never was';
    return new ApiError('HOLD_UNKNOWN', `hold: ${isOwn ? over : other}`);
  }
}

/** Returns what a hold took, as its answer says it. */
export function amountsTaken(
  parts: readonly Pick<Part, 'name' | 'held'>[],
): Pick<Hold, 'credits' | 'ratelimits'> {
  const amounts = parts.flatMap(({ name, held: cost }) => (name === undefined ? [] : [{ name, cost }]));
  const ratelimits = amounts.filter(({ name }) => name !== CREDITS);
  const credits = amounts.find(({ name }) => name === CREDITS)?.cost;
  return { ...(credits !== undefined && { credits }), ...(ratelimits.length > 0 && { ratelimits }) };
}

/** Returns what work cost of a part of its hold; places cost nothing. */
const costOf = ({ name, held }: Part, costs: Costs): number =>
  name === undefined ? 0 : Object.hasOwn(costs, name) ? (costs[name] as number) : held;
